"""What the rows over the session service say to it, as requests that are made beforehand."""

import itertools
import json
from collections.abc import Iterable, Sequence

import msgspec

from tests.bench.client import Connection, request_bytes
from tests.bench.payload import ITEMS
from tests.bench.stand import SESSIONS, Stand
from tests.bench.windows import Step

APPEND_MAX = 1000

_keys = itertools.count()


class _Page(msgspec.Struct):
    session_items: list[msgspec.Raw]


async def make_sessions(stand: Stand, connection: Connection, names: Iterable[str], items: int = 0) -> None:
    """New sessions, an actor each, with that many items."""
    for name in names:
        body = json.dumps({"actor_id": f"actor of {name}"}).encode()
        await connection.ask(request_bytes("POST", f"{SESSIONS}?session_id={name}", stand.headers, body))
        for start in range(0, items, APPEND_MAX):
            await connection.ask(append_request(stand, name, min(APPEND_MAX, items - start)))


def append_request(stand: Stand, session: str, items: int = len(ITEMS)) -> bytes:
    """One append, for once: its Idempotency-Key is used up."""
    head, rest = _append_parts(stand, session, items)
    return b"%s%x%s" % (head, next(_keys), rest)


def append_step(stand: Stand, connection: Connection, sessions: Sequence[str]) -> Step:
    """Appends two items under a new key, to each session in turn."""
    parts = itertools.cycle([_append_parts(stand, session, len(ITEMS)) for session in sessions])

    async def append() -> None:
        head, rest = next(parts)
        await connection.ask(b"%s%x%s" % (head, next(_keys), rest))

    return append


def reload_step(stand: Stand, connection: Connection, session: str, size: int, order: str = "") -> Step:
    request = reload_request(stand, session, size, order)
    return lambda: connection.ask(request)


def reload_request(stand: Stand, session: str, size: int, order: str = "") -> bytes:
    return request_bytes("GET", f"{SESSIONS}/{session}/items?page_size={size}{order}", stand.headers)


def count_items(body: bytes) -> int:
    return len(msgspec.json.decode(body, type=_Page).session_items)


def _append_parts(stand: Stand, session: str, items: int) -> tuple[bytes, bytes]:
    """What comes before and behind the Idempotency-Key."""
    data = ",".join(f'{{"data":{item}}}' for item in itertools.islice(itertools.cycle(ITEMS), items))
    headers = {**stand.headers, "Idempotency-Key": "KEY"}
    request = request_bytes("POST", f"{SESSIONS}/{session}/items:append", headers, f'{{"items":[{data}]}}'.encode())
    head, _, rest = request.partition(b"KEY\r\n")
    return head, b"\r\n" + rest
