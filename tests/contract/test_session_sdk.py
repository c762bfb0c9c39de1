"""The published client, unmodified, against the session service behind a real server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.common.types.fieldmask import FieldMask
from databricks.sdk.errors import (
    AlreadyExists,
    BadRequest,
    InvalidParameterValue,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from databricks.sdk.service.agentkit import (
    PermissionLevel,
    PrincipalType,
    Session,
    SessionItem,
    SessionStore,
    StorePrincipal,
)

from services.session.app import REVISIONS
from tests.support.servers import PostgresServer
from tests.support.service import USER, Keys, database, key_directory, served
from tests.support.session import message, session_app

BO = StorePrincipal(name="bo@example.com", principal_type=PrincipalType.USER)


def mask(*paths: str) -> FieldMask:
    return FieldMask(list(paths))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Published:
    url: str
    keys: Keys

    def client(self, user: str = USER, **claims: Any) -> WorkspaceClient:
        return WorkspaceClient(host=self.url, token=self.keys.token(user, **claims))


@pytest.fixture(scope="module")
async def published(postgres: PostgresServer) -> AsyncIterator[Published]:
    with key_directory() as keys:
        async with database(postgres, "session", REVISIONS) as dsn, served(session_app(dsn, keys)) as url:
            yield Published(url, keys)


def kit(published: Published, user: str = USER, **claims: Any) -> Any:
    return published.client(user, **claims).agent_kit


@pytest.fixture
async def store(published: Published) -> str:
    """The resource name of a fresh store."""
    name = f"chats-{uuid4().hex[:8]}"
    made = await asyncio.to_thread(lambda: kit(published).create_session_store(SessionStore(description="d"), name))
    assert made.name == f"session-stores/{name}"
    return str(made.name)


async def test_a_store_lives_its_life(published: Published, store: str) -> None:
    def story() -> None:
        api = kit(published)
        changed = api.update_session_store(store, SessionStore(metadata={"team": "a"}), mask("description", "metadata"))
        assert (changed.description, changed.metadata) == (None, {"team": "a"})
        assert api.get_session_store(store) == changed
        assert changed.creator_user_id == USER
        assert changed.create_time.ToDatetime().year >= 2025
        assert store in [each.name for each in api.list_session_stores(page_size=1)]
        api.delete_session_store(store)
        with pytest.raises(NotFound):
            api.get_session_store(store)
        with pytest.raises(NotFound):
            api.delete_session_store(store)

    await asyncio.to_thread(story)


async def test_a_session_lives_its_life(published: Published, store: str) -> None:
    def story() -> None:
        api = kit(published)
        made = api.create_session(store, Session(actor_id="ana", metadata={"a": "1"}), session_id="s1")
        assert (made.session_id, made.actor_id, made.root_session_id) == ("s1", "ana", "s1")
        child = api.create_session(store, Session(actor_id="ana", parent_session_id="s1"))
        assert (child.parent_session_id, child.root_session_id) == ("s1", "s1")
        changed = api.update_session(made.name, Session(actor_id="ana", metadata={"b": "2"}), mask("metadata"))
        assert api.get_session(made.name) == changed
        assert changed.metadata == {"b": "2"}
        for n in range(25):
            api.create_session(store, Session(actor_id=f"actor {n % 2}"), session_id=f"x{n:02}")
        everyone = list(api.list_sessions(store, order_by="create_time asc", page_size=7))
        assert [each.session_id for each in everyone[2:]] == [f"x{n:02}" for n in range(25)]
        of_one = list(api.list_sessions(store, filter='actor_id = "actor 1"'))
        assert len(of_one) == 12
        api.delete_session(made.name)
        with pytest.raises(NotFound):
            api.get_session(child.name)

    await asyncio.to_thread(story)


async def test_items_are_appended_listed_popped_forked_and_cleared(published: Published, store: str) -> None:
    def story() -> None:
        api = kit(published)
        session = api.create_session(store, Session(actor_id="ana"), session_id="s1").name
        sent = [message(f"line {n}") for n in range(30)]
        appended = api.append_session_items(session, [SessionItem(data=data) for data in sent]).session_items
        listed = list(api.list_session_items(session, order_by="create_time asc", page_size=7))
        assert [item.data for item in listed] == sent
        assert listed == appended
        assert [item.data for item in api.list_session_items(session)] == sent[::-1]
        forked = api.fork_session(store, "s1", "bo", metadata={"k": "v"}, up_to_item_id=appended[9].item_id).session
        assert (forked.actor_id, forked.metadata) == ("bo", {"k": "v"})
        assert len(list(api.list_session_items(forked.name))) == 10
        assert api.pop_session_item(session).item == appended[-1]
        api.clear_session_items(session)
        assert list(api.list_session_items(session)) == []
        assert api.pop_session_item(session).item is None

    await asyncio.to_thread(story)


async def test_huge_items_come_page_by_page_to_the_end(published: Published, store: str) -> None:
    def life() -> list[int]:
        api = kit(published)
        api.create_session(store, Session(actor_id="ana"), session_id="huge")
        session = f"{store}/sessions/huge"
        for n in range(4):
            api.append_session_items(session, [SessionItem(data=message(f"{n}" * 3_500_000))])
        return [len(item.data["content"]) for item in api.list_session_items(session, page_size=100)]

    assert await asyncio.to_thread(life) == [3_500_000] * 4


async def test_permissions_are_granted_seen_and_revoked(published: Published, store: str) -> None:
    def story() -> None:
        api, bo = kit(published), kit(published, BO.name)
        with pytest.raises(PermissionDenied):
            bo.get_session_store(store)
        api.grant_session_store_permission(store, BO, PermissionLevel.READ)
        bo.get_session_store(store)
        with pytest.raises(PermissionDenied):
            bo.create_session(store, Session(actor_id="bo"))
        api.grant_session_store_permission(store, BO, PermissionLevel.WRITE)
        bo.create_session(store, Session(actor_id="bo"))
        listed = list(api.list_session_store_permissions(store, page_size=1))
        assert [(each.principal.name, each.permission) for each in listed] == [(BO.name, PermissionLevel.WRITE)]
        assert bo.get_session_store_permission(store).permission == PermissionLevel.WRITE
        with pytest.raises(PermissionDenied):
            bo.grant_session_store_permission(store, BO, PermissionLevel.READ)
        api.revoke_session_store_permission(store, BO)
        with pytest.raises(PermissionDenied):
            bo.get_session_store(store)

    await asyncio.to_thread(story)


async def test_errors_arrive_as_the_clients_own_classes(published: Published, store: str) -> None:
    def story() -> None:
        api = kit(published)
        with pytest.raises(AlreadyExists):
            api.create_session_store(SessionStore(), store.partition("/")[2])
        with pytest.raises(InvalidParameterValue, match="3 to 63"):
            api.create_session_store(SessionStore(), "A")
        session = api.create_session(store, Session(actor_id="ana"), session_id="s1").name
        with pytest.raises(AlreadyExists):
            api.create_session(store, Session(actor_id="ana"), session_id="s1")
        with pytest.raises(InvalidParameterValue, match="data"):
            api.append_session_items(session, [SessionItem(data={})])
        with pytest.raises(InvalidParameterValue):
            api.append_session_items(session, [])
        with pytest.raises(InvalidParameterValue, match="metadata"):
            api.update_session(session, Session(actor_id="x"), mask("actor_id"))
        with pytest.raises(InvalidParameterValue):
            list(api.list_sessions(store, page_size=101))
        with pytest.raises(NotFound):
            api.append_session_items(f"{store}/sessions/none", [SessionItem(data=1)])
        with pytest.raises(NotFound):
            kit(published, workspace=2).get_session_store(store)
        with pytest.raises(Unauthenticated):
            WorkspaceClient(host=published.url, token="nonsense").agent_kit.get_session_store(store)

    await asyncio.to_thread(story)


async def test_an_older_client_is_refused_what_has_descendants(published: Published, store: str) -> None:
    def story() -> None:
        api = kit(published)
        api.create_session(store, Session(actor_id="a"), session_id="p")
        api.create_session(store, Session(actor_id="a", parent_session_id="p"))
        with pytest.raises(BadRequest, match="descendants"):
            published.client().api_client.do("DELETE", f"/api/2.0/agents/{store}/sessions/p", query={"force": False})

    await asyncio.to_thread(story)


async def test_the_client_knows_who_it_is(published: Published) -> None:
    me = await asyncio.to_thread(lambda: published.client().current_user.me())
    robot = await asyncio.to_thread(lambda: published.client("app-1", service_principal=True).current_user.me())

    assert (me.user_name, robot.user_name) == (USER, "app-1")


async def test_every_permission_path_is_served_below_both_bases(published: Published, store: str) -> None:
    async with httpx.AsyncClient(base_url=published.url, headers=published.keys.header()) as client:
        for base in ("/api/2.0/agents", "/api/agents/v1"):
            path = f"{base}/{store}/permissions"
            principal = {"type": "SERVICE_PRINCIPAL", "name": "app-1"}
            granted = await client.post(f"{path}:grant", json={"principal": principal, "permission": "READ"})
            listed = await client.get(path)
            own = await client.get(f"{path}/self")
            revoked = await client.post(f"{path}:revoke", json={"principal": principal})

            assert [a.status_code for a in (granted, listed, own, revoked)] == [200] * 4
            assert listed.json()["session_store_permissions"][0]["principal"]["name"] == "app-1"
