"""Whether the lines that a memory rests on can still be read: only the session service knows."""

import asyncio
from dataclasses import replace
from typing import Protocol

from libs.chassis.errors import Retry
from libs.contracts.requests import ReadTranscript, Transcript
from services.memory.store.proofs import Proof
from services.memory.store.records import Found

TIMEOUT_S = 0.5


class Asker(Protocol):
    async def ask(self, request: ReadTranscript, answer: type[Transcript], *, timeout_s: float = ...) -> Transcript: ...


class Evidence:
    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def looked_up(self, found: Found) -> Found:
        """The entry with each proof's availability; unknown while the session service does not answer."""
        return replace(found, evidence=list(await asyncio.gather(*(self._asked(proof) for proof in found.evidence))))

    async def _asked(self, proof: Proof) -> Proof:
        first = min(proof.positions, default=0)
        question = ReadTranscript(
            store_uid=proof.session_store_uid, session_uid=proof.session_uid, after=max(0, first - 1), limit=1
        )
        try:
            transcript = await self._asker.ask(question, Transcript, timeout_s=TIMEOUT_S)
        except Retry:
            return proof
        is_there = not transcript.gone and any(line.position == first for line in transcript.lines)
        return replace(proof, available=is_there)
