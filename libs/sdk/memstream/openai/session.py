"""The Agents SDK's `Session` over a session store: an input item is a session item, its `data` the item unchanged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from agents.memory.session_settings import resolve_session_limit

from memstream.aio.client import AsyncAgentKitClient
from memstream.aio.configured import process_client
from memstream.aio.fenced import Fenced, Replaced
from memstream.aio.sessions import COLLECTION, SessionStore
from memstream.configured import session_store_name
from memstream.errors import AlreadyExists, NotFound
from memstream.openai.history import whole
from memstream.openai.local import LocalSession, begun_here, found_here
from memstream.optional import ActorMismatch, OnUnavailable, bound_instance, checked, tolerated
from memstream.records import SessionItem
from memstream.values import PAGE_MAX, bare

OLDEST_FIRST = "create_time asc"
METADATA = {"client": "memstream-openai"}

T = TypeVar("T")


class MemstreamSession:
    """One conversation, made in its store by the first call that needs it; see `session_store`.

    Every call raises `ActorMismatch`, a `PermissionDenied`, when the conversation belongs to another actor, and
    `MemstreamError`. May be used by one run at a time, on one event loop.
    """

    def __init__(
        self,
        session_id: str,
        actor: str | None = None,
        store: str | None = None,
        *,
        client: AsyncAgentKitClient | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._actor = actor or session_id
        self._store_name = session_store_name(store)
        self._client = client
        self._opened: Fenced | LocalSession | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The conversation, oldest first; with a limit (or that of `session_settings`) its newest items.

        These are at most `limit`, and read from the end. A group that the limit would cut through, such as a tool call
        and its output, is left out whole.
        """
        limit = resolve_session_limit(limit, self.session_settings)
        if limit is not None and limit < 1:
            return []
        if limit is None:
            return [item.data for item in await self._with_session(_all)]
        count = limit + 1
        newest = await self._with_session(lambda session: _newest(session, count))
        return whole([item.data for item in reversed(newest)], limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Appends all or none, once however often it had to be sent."""
        if not items:
            return

        async def append(session: Fenced | LocalSession) -> None:
            try:
                await session.append_items(items)
            except Replaced:  # they stand in the session that has the id now
                self._opened = None
                await self._session()

        await self._with_session(append)

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes and returns the newest item; None when there is none."""
        item = await self._with_session(lambda session: session.pop_item(), removes=True)
        return None if item is None else cast(TResponseInputItem, item.data)

    async def clear_session(self) -> None:
        """Removes all items; the session stays, and so do memories."""
        await self._with_session(lambda session: session.clear_items(), removes=True)

    async def read_all(self) -> list[SessionItem]:
        """The conversation's items, oldest first; none, and it is not begun, where there is no such conversation."""
        try:
            return await _all(self._of_actor(await self._found()))
        except NotFound:
            return []

    async def _with_session(self, call: Callable[[Fenced | LocalSession], Awaitable[T]], *, removes: bool = False) -> T:
        """The call's result; once more where the conversation was deleted since it was opened.

        What removes cannot be taken back, so whose the conversation is is asked before it.
        """
        was_open = self._opened is not None
        if removes or (isinstance(self._opened, Fenced) and not self._opened.is_sure):
            self._opened = None
        try:
            return await call(await self._session())
        except NotFound:
            if not was_open:
                raise
            self._opened = None
            return await call(await self._session())

    async def _session(self) -> Fenced | LocalSession:
        """The conversation, begun if there is none."""
        if self._opened is None:
            try:
                found = await self._found()
            except NotFound:
                found = await self._begun()
            self._opened = self._of_actor(found)
        return self._opened

    async def _found(self) -> Fenced | LocalSession:
        if self._store_name is None:
            return found_here(self.session_id)
        return Fenced(await self._store.get(self.session_id))

    async def _begun(self) -> Fenced | LocalSession:
        if self._store_name is None:
            return begun_here(self.session_id, self._actor)
        try:
            made = await self._store.add(actor_id=self._actor, session_id=self.session_id, metadata=METADATA)
        except AlreadyExists:  # another process came first
            made = await self._store.get(self.session_id)
        return Fenced(made)

    def _of_actor(self, session: Fenced | LocalSession) -> Fenced | LocalSession:
        if session.actor_id != self._actor:
            raise ActorMismatch(
                "the session belongs to another actor",
                error_code="PERMISSION_DENIED",
                hint="give the actor that it was made for, or another session id",
            )
        return session

    @property
    def _store(self) -> SessionStore:
        """By its name alone, without asking for its record."""
        client = self._client or process_client()
        return SessionStore.of({"name": bare(COLLECTION, self._store_name or "")}, client._transport)


class AsyncSession(MemstreamSession):
    """A conversation that an agent can do without: where it cannot be had it reads as empty, and nothing is kept.

    Part of the layer of `memstream.stateful`. `instance_name` is the session store, else AGENT_SESSION_STORE, else
    LAKEBASE_INSTANCE_NAME. With `on_unavailable="raise"` it is as `session_store`.
    """

    def __init__(
        self,
        session_id: str,
        instance_name: str | None = None,
        *,
        actor: str | None = None,
        client: AsyncAgentKitClient | None = None,
        session_settings: SessionSettings | None = None,
        on_unavailable: OnUnavailable = "ignore",
    ) -> None:
        store = session_store_name(instance_name) or bound_instance()
        super().__init__(session_id, actor, store, client=client, session_settings=session_settings)
        self._on_unavailable = checked(on_unavailable)

    async def setup(self) -> None:
        """Makes the session store where it is missing; may be called any number of times, or never."""
        if self._store_name is None:
            return
        with tolerated("setup", self._on_unavailable):
            try:
                await (self._client or process_client()).session_stores.create(bare(COLLECTION, self._store_name))
            except AlreadyExists:
                return

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        with tolerated("get_items", self._on_unavailable):
            return await super().get_items(limit)
        return []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        with tolerated("add_items", self._on_unavailable):
            await super().add_items(items)

    async def pop_item(self) -> TResponseInputItem | None:
        with tolerated("pop_item", self._on_unavailable):
            return await super().pop_item()
        return None

    async def clear_session(self) -> None:
        with tolerated("clear_session", self._on_unavailable):
            await super().clear_session()


def session_store(
    session_id: str,
    actor: str | None = None,
    store: str | None = None,
    *,
    client: AsyncAgentKitClient | None = None,
    session_settings: SessionSettings | None = None,
) -> MemstreamSession:
    """The `session=` of `Runner.run`: the conversation of that id, resumed or begun.

    The store is the argument, then AGENT_SESSION_STORE; without one the conversation lasts as long as the process.
    `actor` says whose it is, the session id when absent; take it from the authenticated request. To speak for that
    user give a `client` with their token, else all share one of MEMSTREAM_URL and MEMSTREAM_TOKEN.
    """
    return MemstreamSession(session_id, actor, store, client=client, session_settings=session_settings)


async def read_history(
    session_id: str,
    actor: str | None = None,
    store: str | None = None,
    *,
    client: AsyncAgentKitClient | None = None,
) -> dict[str, Any]:
    """`{"session_id", "session_items": [{"item_id", "data"}], "interrupts": []}`, for a page that shows it.

    A conversation that was never begun has no items, and is not begun by this. Raises as `MemstreamSession` does.
    """
    items = await MemstreamSession(session_id, actor, store, client=client).read_all()
    return {
        "session_id": session_id,
        "session_items": [{"item_id": item.item_id, "data": item.data} for item in items],
        "interrupts": [],
    }


async def _all(session: Fenced | LocalSession) -> list[SessionItem]:
    return [item async for item in session.list_items(page_size=PAGE_MAX, order_by=OLDEST_FIRST)]


async def _newest(session: Fenced | LocalSession, count: int) -> list[SessionItem]:
    """So many, the newest first."""
    found: list[SessionItem] = []
    async for item in session.list_items(page_size=min(count, PAGE_MAX)):
        found.append(item)
        if len(found) == count:
            break
    return found
