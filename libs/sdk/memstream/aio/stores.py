"""What both kinds of stores have: permissions, and erasing an actor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from memstream.aio.transport import Transport
from memstream.records import ErasureReceipt, Permission
from memstream.values import one_of, segment, snapshot

PERMISSIONS_PAGE_MAX = 1000
LEVELS = ("READ", "WRITE")
PRINCIPAL_TYPES = ("USER", "SERVICE_PRINCIPAL")


@dataclass(frozen=True)
class Bound:
    """A snapshot whose methods go to the server; it never changes by itself."""

    _transport: Transport = field(repr=False, compare=False, kw_only=True)


class Store(Bound, ABC):
    _permissions: ClassVar[str]  # the field of a list of them

    @property
    @abstractmethod
    def _path(self) -> str: ...

    async def grant_permission(
        self, principal_id: str, *, permission: str = "WRITE", principal_type: str | None = None
    ) -> None:
        """Lets a user, named by e-mail, or a service principal, named by client id, use the whole store.

        WRITE includes READ. The latest grant counts. For the store's creator or an admin.
        """
        one_of("permission", permission, LEVELS)
        principal = _principal(principal_id, principal_type)
        body = {"principal": principal, "permission": permission}
        await self._transport.send("POST", f"{self._path}/permissions:grant", body=body)

    async def revoke_permission(self, principal_id: str, *, principal_type: str | None = None) -> None:
        """Takes back what was granted; the creator keeps access. For the store's creator or an admin."""
        body = {"principal": _principal(principal_id, principal_type)}
        await self._transport.send("POST", f"{self._path}/permissions:revoke", body=body)

    async def list_permissions(self, *, page_size: int | None = None) -> AsyncIterator[Permission]:
        """What was granted; the creator's own access is not in it. `page_size` is 1 to 1,000."""
        raws = self._transport.pages(
            f"{self._path}/permissions", self._permissions, page_size=page_size, maximum=PERMISSIONS_PAGE_MAX
        )
        async for raw in raws:
            yield Permission.of(raw)

    async def own_permission(self) -> Permission:
        """What the caller may do with the store."""
        return Permission.of(await self._transport.get(f"{self._path}/permissions/self"))

    async def erase_actor(self, actor_id: str) -> ErasureReceipt:
        """Forgets an actor: everything of theirs in this store and what rests on it elsewhere. There is no way back.

        From a session store it reaches every memory that was distilled from it alone. The receipt is `PENDING` until
        every service has confirmed. Needs WRITE, or an admin.
        """
        raw = await self._transport.create(f"{self._path}/actors:erase", body={"actor_id": actor_id})
        return snapshot(ErasureReceipt, raw)

    async def get_erasure(self, erasure_id: str) -> ErasureReceipt:
        raw = await self._transport.get(f"{self._path}/erasures/{segment(erasure_id)}")
        return snapshot(ErasureReceipt, raw)


def _principal(principal_id: str, principal_type: str | None) -> dict[str, Any]:
    kind = principal_type or ("USER" if "@" in principal_id else "SERVICE_PRINCIPAL")
    one_of("principal_type", kind, PRINCIPAL_TYPES)
    return {"principal_type": kind, "name": principal_id}
