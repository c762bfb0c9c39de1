"""`Idempotency-Key`: a repeat within 24 hours gets the first answer, once the same body proves that it is a repeat.

A row holds hashes and the resource's name, never user text. It is written by the transaction that it protects, so an
error keeps no key, and parallel repeats wait for the first. A key ends with what it made: after its deletion a repeat
is a first call, so that what makes its keys from its data can make the data again.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from starlette.requests import Request

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.errors import Aborted, InvalidParameter
from libs.chassis.unit_of_work import Tx

HEADER = "idempotency-key"
REPLAYED = {"Idempotent-Replayed": "true"}
NO_STORE = UUID(int=0)

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """`key_sha256` covers workspace, principal, method, path and key; `body_sha256` the body's bytes."""

    key_sha256: bytes
    body_sha256: bytes

    @classmethod
    def of(cls, request: Request, caller: Caller, body: bytes) -> "IdempotencyKey | None":
        key = request.headers.get(HEADER)
        if key is None:
            return None
        if not 1 <= len(key) <= 255 or not (key.isascii() and key.isprintable()):
            raise InvalidParameter("Idempotency-Key must be 1 to 255 printable ASCII characters.")
        request.state.takes_key = True
        target = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
        parts = (str(caller.workspace_id), caller.principal_type, caller.principal, request.method, target, key)
        scope = "\x00".join(parts)
        return cls(hashlib.sha256(scope.encode()).digest(), hashlib.sha256(body).digest())


def check_same(body_sha256: bytes, key: IdempotencyKey) -> None:
    if bytes(body_sha256) != key.body_sha256:
        raise Aborted("This Idempotency-Key was used with another body within the last 24 hours. Use a new key.")


async def recall(
    reader: Database | Tx,
    store_uid: UUID,
    key: IdempotencyKey,
    find: Callable[[str], Awaitable[Made | None]],
    *,
    hold: bool = False,
) -> Made | None:
    """What an earlier request made with this key, as `find` finds it by its name; None when there is no such thing."""
    used = await reader.fetchrow(
        "select body_sha256, resource from idempotency_keys"
        f" where store_uid = $1 and key_sha256 = $2 {'for update' if hold else ''}",
        store_uid,
        key.key_sha256,
    )
    made = None if used is None else await find(used["resource"])
    if used is not None and made is not None:
        check_same(used["body_sha256"], key)
    return made


async def claim(
    tx: Tx, store_uid: UUID, key: IdempotencyKey, resource: str, find: Callable[[str], Awaitable[Made | None]]
) -> Made | None:
    """Takes the key for `resource`, or returns what an earlier request made with it, as long as `find` finds that."""
    row = (store_uid, key.key_sha256, key.body_sha256, resource)
    if await tx.execute(
        "insert into idempotency_keys (store_uid, key_sha256, body_sha256, resource)"
        " values ($1, $2, $3, $4) on conflict do nothing",
        *row,
    ):
        return None
    made = await recall(tx, store_uid, key, find, hold=True)
    if made is None and not await tx.execute(
        "update idempotency_keys set body_sha256 = $3, resource = $4, created_at = now()"
        " where store_uid = $1 and key_sha256 = $2",
        *row,
    ):
        raise Aborted("A request with this Idempotency-Key was just undone. Repeat it.")
    return made
