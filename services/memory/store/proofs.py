"""The evidence under versions: which lines of which session each rests on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from libs.chassis.unit_of_work import Tx
from libs.contracts.ids import uuid7
from services.memory.domain import Entry, Source

# The rows `x` as JSON, newest first.
PROOFS = (
    "json_agg(json_build_object('session_store_uid', x.session_store_uid,"
    " 'session_store_id', x.session_store_id, 'session_uid', x.session_uid, 'session_id', x.session_id,"
    " 'positions', x.positions, 'said_by', x.said_by, 'said_at', x.said_at, 'source_epoch', x.source_epoch)"
    " order by x.said_at desc, x.evidence_uid)"
)
INSERT_EVIDENCE = (
    "insert into version_evidence (store_uid, evidence_uid, actor_id, entry_uid, version, session_store_uid,"
    " session_store_id, session_uid, session_id, positions, said_by, said_at, source_epoch)"
)
# The evidence `x` given to the version `h` of the actor $2 in the store $1.
GIVEN = (
    "$1, gen_random_uuid(), $2, h.entry_uid, h.version, x.session_store_uid, x.session_store_id, x.session_uid,"
    " x.session_id, x.positions, x.said_by, x.said_at, x.source_epoch"
)
# That of a version `v`; for a select or an EXISTS.
OF_VERSION = (
    "version_evidence x where x.store_uid = v.store_uid and x.actor_id = v.actor_id"
    " and x.entry_uid = v.entry_uid and x.version = v.version"
)
# Evidence from `proofs_json`: $1 store, $2 actor, $3 entry, $4 version.
INSERT_PROOFS = (
    f"{INSERT_EVIDENCE} select $1, p.evidence_uid, $2, $3, $4, p.session_store_uid, p.session_store_id, p.session_uid,"
    " p.session_id, p.positions, p.said_by, p.said_at, p.source_epoch"
    " from jsonb_to_recordset({proofs}::jsonb) p (evidence_uid uuid, session_store_uid uuid, session_store_id text,"
    " session_uid uuid, session_id text, positions bigint[], said_by text, said_at timestamptz,"
    " source_epoch bigint)"
)


@dataclass(frozen=True, slots=True)
class Proof:
    """The lines of one session that a version rests on. `source_epoch`: the actor's in the session store when they were
    read. `available`: can they still be read? None: not asked."""

    session_store_uid: UUID
    session_store_id: str
    session_uid: UUID
    session_id: str | None
    positions: list[int]
    said_by: str
    said_at: datetime
    source_epoch: int
    available: bool | None = None


_PROOFS = msgspec.json.Decoder(list[Proof])


def proofs_from(evidence: str | None) -> list[Proof]:
    return _PROOFS.decode(evidence) if evidence else []


async def support(tx: Tx, slot: Entry, store_uid: UUID, version: int, proofs: Sequence[Proof]) -> None:
    """Adds evidence; lines that a version rests on already add nothing."""
    await tx.execute(
        f"{INSERT_PROOFS.format(proofs='$5')}"
        " where not exists (select from version_evidence x where x.store_uid = $1 and x.actor_id = $2"
        " and x.entry_uid = $3 and x.version = $4 and x.session_uid = p.session_uid"
        " and x.positions @> p.positions)",
        store_uid,
        slot.actor_id,
        slot.entry_uid,
        version,
        proofs_json(proofs),
    )


async def carry(tx: Tx, entry: Entry, store_uid: UUID, *, source: int) -> None:
    """The entry's newest version rests on what `source` rests on."""
    await carry_all(tx, store_uid, entry.actor_id, [(entry, source)])


async def carry_all(tx: Tx, store_uid: UUID, actor_id: str, carried: Sequence[tuple[Entry, int]]) -> None:
    """As `carry`, of many entries, each with its `source`."""
    await tx.execute(
        f"{INSERT_EVIDENCE} select {GIVEN} from unnest($3::uuid[], $4::int[], $5::int[]) h (entry_uid, version, source)"
        " cross join lateral (select * from version_evidence where store_uid = $1 and actor_id = $2"
        "  and entry_uid = h.entry_uid and version = h.source offset 0) x",
        store_uid,
        actor_id,
        [entry.entry_uid for entry, _ in carried],
        [entry.version for entry, _ in carried],
        [source for _, source in carried],
    )


async def move(
    tx: Tx, slot: Entry, store_uid: UUID, *, source: int, target: int, since: datetime, after: Source | None
) -> None:
    """What was said since then supports another version; of the session of `after` only later lines, in that moment."""
    await tx.execute(
        "update version_evidence set version = $5"
        " where store_uid = $1 and actor_id = $2 and entry_uid = $3 and version = $4 and said_at >= $6"
        " and (said_at = $6 and session_uid = $7 and not $8 < any(positions)) is not true",
        store_uid,
        slot.actor_id,
        slot.entry_uid,
        source,
        target,
        since,
        after and after.session_uid,
        after and after.position,
    )


def proofs_json(proofs: Sequence[Proof]) -> str:
    """For `INSERT_PROOFS`."""
    return json.dumps(
        [
            {
                "evidence_uid": str(uuid7()),
                "session_store_uid": str(proof.session_store_uid),
                "session_store_id": proof.session_store_id,
                "session_uid": str(proof.session_uid),
                "session_id": proof.session_id,
                "positions": proof.positions,
                "said_by": proof.said_by,
                "said_at": proof.said_at.isoformat(),
                "source_epoch": proof.source_epoch,
            }
            for proof in proofs
        ]
    )
