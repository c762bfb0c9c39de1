"""What other services say of a caller's rights on their stores."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel

from libs.chassis.auth import Caller
from libs.chassis.errors import NotFound, PermissionDenied, Retry, Unavailable
from libs.contracts.requests import (
    AuthorizeMemoryStore,
    AuthorizeSessionStore,
    Message,
    Permission,
    StoreAuthorization,
)

Ask = Callable[..., Awaitable[Any]]
AnswerT = TypeVar("AnswerT", bound=BaseModel)


class Authorization:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def answer(self, question: Message, kind: type[AnswerT]) -> AnswerT:
        """The answer of the service that owns the store, or `Unavailable`: nothing was written."""
        try:
            answer: AnswerT = await self._ask(question, kind)
        except Retry:
            raise Unavailable("The service that owns the store does not answer; nothing was written.") from None
        return answer

    async def session_store(
        self, caller: Caller, permission: Permission, *, store_id: str | None = None, store_uid: UUID | None = None
    ) -> StoreAuthorization:
        return await self._of(AuthorizeSessionStore, caller, permission, store_id, store_uid)

    async def memory_store(
        self, caller: Caller, permission: Permission, *, store_id: str | None = None, store_uid: UUID | None = None
    ) -> StoreAuthorization:
        return await self._of(AuthorizeMemoryStore, caller, permission, store_id, store_uid)

    async def pair(self, caller: Caller, source_id: str, target_id: str) -> tuple[UUID, UUID]:
        """The uids of a session store to READ and a memory store to WRITE. Raises `NotFound`, `PermissionDenied`."""
        source = await self.session_store(caller, "READ", store_id=source_id)
        target = await self.memory_store(caller, "WRITE", store_id=target_id)
        return (
            _granted(source, f"session store '{source_id[:80]}'", "READ"),
            _granted(target, f"memory store '{target_id[:80]}'", "WRITE"),
        )

    async def _of(
        self,
        question: type[AuthorizeSessionStore] | type[AuthorizeMemoryStore],
        caller: Caller,
        permission: Permission,
        store_id: str | None,
        store_uid: UUID | None,
    ) -> StoreAuthorization:
        return await self.answer(
            question(
                workspace_id=caller.workspace_id,
                principal_type=caller.principal_type,
                principal=caller.principal,
                permission=permission,
                store_id=store_id,
                store_uid=store_uid,
            ),
            StoreAuthorization,
        )


def _granted(answer: StoreAuthorization, name: str, permission: Permission) -> UUID:
    if answer.store_uid is None:
        raise NotFound(f"There is no {name}.")
    if not answer.allowed:
        raise PermissionDenied(f"You need {permission} on {name} to do this.")
    return answer.store_uid
