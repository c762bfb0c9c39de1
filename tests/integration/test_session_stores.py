"""Session stores and their permissions over HTTP on a real database."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.support.servers import PostgresServer
from tests.support.service import USER, until
from tests.support.session import STORES, SessionService, session_service

KEY = {"Idempotency-Key": "k1"}
BO = "bo@example.com"


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"chats-{uuid4().hex[:8]}"


async def status(service: SessionService, method: str, path: str, **request: Any) -> tuple[int, str | None]:
    answer = await service.client.request(method, STORES + path, **request)
    return answer.status_code, answer.json().get("error_code")


async def test_a_store_is_made_read_changed_and_deleted(service: SessionService, name: str) -> None:
    made = await service.call(
        "POST",
        "",
        params={"session_store_id": name},
        json={"description": "d", "metadata": {"a": "1"}, "retention_days": 30},
    )
    changed = await service.call(
        "PATCH", f"/{name}", params={"update_mask": "description,retention_days"}, json={"metadata": {"b": "2"}}
    )

    assert made["name"] == f"session-stores/{name}"
    assert (made["session_store_name"], made["session_store_id"]) == (name, name)
    assert (made["description"], made["metadata"], made["retention_days"]) == ("d", {"a": "1"}, 30)
    assert made["creator_user_id"] == "ana@example.com"
    assert "description" not in changed
    assert "retention_days" not in changed
    assert changed["metadata"] == {"a": "1"}
    assert changed == await service.call("GET", f"/{name}")
    assert await service.call("DELETE", f"/{name}") == {}
    assert await status(service, "GET", f"/{name}") == (404, "NOT_FOUND")
    assert await status(service, "DELETE", f"/{name}") == (404, "NOT_FOUND")


async def test_the_older_spelling_makes_the_same_store(service: SessionService, name: str) -> None:
    made = await service.call("POST", "", params={"session_store_name": name, "session_store_id": name})

    assert made["session_store_id"] == name
    assert await status(service, "POST", "", params={"session_store_name": name, "session_store_id": f"{name}x"}) == (
        400,
        "INVALID_PARAMETER_VALUE",
    )
    assert await status(service, "POST", "", params={"session_store_name": name}) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize("good", ["abc", "a-c", "a" * 63, "a1-9"])
async def test_names_of_the_rule_pass(service: SessionService, good: str) -> None:
    assert (await service.call("POST", "", params={"session_store_id": good}))["session_store_id"] == good


@pytest.mark.parametrize("bad", ["", "ab", "a" * 64, "Abc", "1bc", "abc-", "a_c", "a.c", "abc\n", "äbc", "a\x00c"])
async def test_other_names_are_refused_with_the_rule(service: SessionService, bad: str) -> None:
    answer = await service.client.post(STORES, params={"session_store_id": bad})

    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "3 to 63" in answer.json()["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"x"',
        b'{"description": 5}',
        b'{"description": "\\u0000"}',
        b'{"description": "\\ud800"}',
        b'{"metadata": {"a": 1}}',
        b'{"metadata": {"\\u0000": "1"}}',
        b'{"retention_days": 0}',
        b'{"retention_days": 1e400}',
        b'{"idle_ttl_minutes": "x"}',
        b"\xff",
        b"[" * 100_000,
        b'{"description": "' + b"x" * 5000 + b'"}',
        b'{"metadata": {"a": "' + b"x" * 1025 + b'"}}',
        b'{"metadata": {"' + b"k" * 257 + b'": "1"}}',
        b'{"metadata": {' + b",".join(b'"%d": "1"' % n for n in range(65)) + b"}}",
    ],
)
async def test_a_wrong_body_is_400_and_makes_nothing(service: SessionService, name: str, body: bytes) -> None:
    answer = await service.client.post(
        STORES, params={"session_store_id": name}, content=body, headers={"Content-Type": "application/json"}
    )

    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert await status(service, "GET", f"/{name}") == (404, "NOT_FOUND")


async def test_an_unknown_mask_is_refused_with_what_is_allowed(service: SessionService, name: str) -> None:
    await service.store(name)

    answer = await service.client.patch(f"{STORES}/{name}", params={"update_mask": "creator_user_id"}, json={})

    assert answer.status_code == 400
    assert "description" in answer.json()["message"]
    assert await status(service, "PATCH", f"/{name}", json={}) == (400, "INVALID_PARAMETER_VALUE")


async def test_stores_page_by_name_and_only_the_callers_own(service: SessionService) -> None:
    cy = service.keys.header("cy@example.com")
    names = [f"list-{n:02}" for n in range(25)]
    for name in names:
        await service.call("POST", "", params={"session_store_id": name}, headers=cy)

    found: list[str] = []
    page: dict[str, Any] = {"next_page_token": ""}
    while "next_page_token" in page:
        page = await service.call("GET", "", params={"page_token": page["next_page_token"]}, headers=cy)
        found += [store["session_store_id"] for store in page["session_stores"]]

    assert found == names
    assert await service.call("GET", "", headers=service.keys.header("dee@example.com")) == {"session_stores": []}


async def test_a_repeated_create_with_its_key_gives_the_store(service: SessionService, name: str) -> None:
    async def create() -> Any:
        return await service.client.post(STORES, params={"session_store_id": name}, headers=KEY, json={})

    answers = await asyncio.gather(*(create() for _ in range(4)))

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(answer.headers.get("Idempotent-Replayed", "") for answer in answers) == ["", "true", "true", "true"]
    assert await status(
        service, "POST", "", params={"session_store_id": name}, headers=KEY, json={"description": "x"}
    ) == (
        409,
        "ABORTED",
    )


async def test_deleting_a_store_takes_all_and_frees_its_name(service: SessionService, name: str) -> None:
    store = await service.store(name)
    for n in range(3):
        await service.append(await service.session(store, f"s{n}"), *range(10))
    store_uid = await service.database.fetchval("select store_uid from session_stores where store_id = $1", name)

    await service.call("DELETE", store)
    await service.store(name)
    sessions = await service.call("GET", f"{store}/sessions")
    await service.clean()

    assert sessions == {"sessions": []}
    for table in ("sessions", "session_items", "idempotency_keys", "purges", "item_purges"):
        assert not await service.database.fetchval(f"select count(*) from {table} where store_uid = $1", store_uid)


async def test_no_orphan_is_left_by_writers_of_a_store_that_is_deleted(service: SessionService, name: str) -> None:
    store = await service.store(name)
    await service.append(await service.session(store), *range(100))
    store_uid = await service.database.fetchval("select store_uid from session_stores where store_id = $1", name)
    before: list[set[int]] = []
    after: list[set[int]] = []
    deleted = asyncio.Event()

    async def write(n: int) -> None:
        statuses = after if deleted.is_set() else before
        made, forked, appended = await asyncio.gather(
            service.client.post(f"{STORES}{store}/sessions", params={"session_id": f"w{n}"}, json={"actor_id": "ana"}),
            service.client.post(f"{STORES}{store}/sessions:fork", json={"source_session_id": "s1", "actor_id": "ana"}),
            service.client.post(f"{STORES}{store}/sessions/s1/items:append", json={"items": [{"data": n}]}),
        )
        statuses.append({made.status_code, forked.status_code, appended.status_code})

    async def write_on() -> None:
        """50 times a second, and for a second after the deletion."""
        numbers = itertools.count()
        left = 50
        async with asyncio.TaskGroup() as writing:
            while left:
                writing.create_task(write(next(numbers)))
                left -= deleted.is_set()
                await asyncio.sleep(1 / 50)

    async def delete() -> None:
        await until(lambda: len(before) >= 20)
        await service.call("DELETE", store)
        deleted.set()
        while len(after) < 50:
            await service.clean()

    await asyncio.gather(delete(), write_on())
    await service.clean()

    assert before[0] == {200}
    assert set().union(*before) <= {200, 404}
    assert set().union(*after) == {404}
    for table in ("sessions", "session_items", "purges", "item_purges"):
        assert not await service.database.fetchval(f"select count(*) from {table} where store_uid = $1", store_uid)


WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
TAKE_THE_NAME = """
insert into sessions (store_uid, session_uid, session_id, actor_id, root_session_id, create_time, update_time,
    last_activity_time) values ($1, gen_random_uuid(), 'late', 'ana', 'late', now(), now(), now())
"""
DROP_THE_KEY = "delete from idempotency_keys where store_uid = $1"


@pytest.mark.parametrize("writer", ["create", "append"])
async def test_a_writer_under_way_while_its_store_is_deleted_and_purged_leaves_no_orphan(
    service: SessionService, name: str, writer: str
) -> None:
    """It waits in the middle of its transaction for another one, which first gets in its way and then gives way."""
    store = await service.store(name)
    session = await service.session(store)
    uid = await service.database.fetchval("select store_uid from session_stores where store_id = $1", name)
    await service.append(session, "late", headers=KEY)
    holder = await asyncpg.connect(service.dsn)

    async def write() -> None:
        if writer == "create":
            await service.client.post(f"{STORES}{store}/sessions?session_id=late", json={"actor_id": "ana"})
        else:
            await service.append(session, "late", headers=KEY)

    async def delete_and_purge() -> None:
        await service.call("DELETE", store)
        await service.clean()

    held = holder.transaction()
    await held.start()
    await holder.execute(TAKE_THE_NAME if writer == "create" else DROP_THE_KEY, uid)
    writing = asyncio.create_task(write())
    await until(lambda: holder.fetchval(f"select ({WAITING}) = 1"))
    deleting = asyncio.create_task(delete_and_purge())
    await until(lambda: _is_done_or(deleting, holder.fetchval(f"select ({WAITING}) = 2")))
    await (held.rollback() if writer == "create" else held.commit())
    await asyncio.gather(writing, deleting)
    await service.clean()

    for table in ("sessions", "session_items", "purges", "item_purges", "idempotency_keys"):
        assert not await holder.fetchval(f"select count(*) from {table} where store_uid = $1", uid), table
    await holder.close()


async def _is_done_or(task: "asyncio.Task[None]", condition: Awaitable[bool]) -> bool:
    return await condition or task.done()


async def test_grants_open_a_store_as_far_as_they_reach(service: SessionService, name: str) -> None:
    store = await service.store(name)
    session = await service.session(store)
    bo = service.keys.header(BO)
    principal = {"principal_type": "USER", "name": BO}

    async def bo_may() -> list[int]:
        answers = [
            await service.client.get(f"{STORES}{session}/items", headers=bo),
            await service.client.post(f"{STORES}{session}/items:append", json={"items": [{"data": 1}]}, headers=bo),
            await service.client.delete(f"{STORES}{store}", headers=bo),
        ]
        return [answer.status_code for answer in answers]

    assert await bo_may() == [403, 403, 403]
    await service.call("POST", f"{store}/permissions:grant", json={"principal": principal, "permission": "READ"})
    assert await bo_may() == [200, 403, 403]
    await service.call("POST", f"{store}/permissions:grant", json={"principal": principal, "permission": "WRITE"})
    assert await bo_may() == [200, 200, 403]
    assert await service.call("GET", f"{store}/permissions/self", headers=bo) == {
        "principal": principal,
        "permission": "WRITE",
    }
    assert (await service.call("GET", f"{store}/permissions"))["session_store_permissions"] == [
        {"principal": principal, "permission": "WRITE"}
    ]
    await service.call("POST", f"{store}/permissions:grant", json={"principal": principal, "permission": "READ"})
    assert await bo_may() == [200, 403, 403]
    await service.call("POST", f"{store}/permissions:revoke", json={"principal": principal})
    assert await bo_may() == [403, 403, 403]
    assert (await service.call("GET", f"{store}/permissions/self", headers=bo))["permission"] == (
        "PERMISSION_LEVEL_UNSPECIFIED"
    )


async def test_the_creator_keeps_write_whatever_is_revoked(service: SessionService, name: str) -> None:
    store = await service.store(name)
    ana = {"type": "USER", "name": "ana@example.com"}

    await service.call("POST", f"{store}/permissions:grant", json={"principal": ana, "permission": "READ"})
    await service.call("POST", f"{store}/permissions:revoke", json={"principal": ana})

    assert (await service.call("GET", f"{store}/permissions/self"))["permission"] == "WRITE"
    await service.session(store)
    assert (await service.call("GET", f"{store}/permissions"))["session_store_permissions"] == []


async def test_an_admin_manages_without_reading(service: SessionService, name: str) -> None:
    store = await service.store(name)
    session = await service.session(store)
    admin = service.keys.header("root@example.com", admin=True)

    assert (await service.call("GET", store, headers=admin))["session_store_id"] == name
    assert await status(service, "GET", f"{session}/items", headers=admin) == (403, "PERMISSION_DENIED")
    assert await status(service, "GET", f"{store}/sessions", headers=admin) == (403, "PERMISSION_DENIED")
    await service.call(
        "POST",
        f"{store}/permissions:grant",
        json={"principal": {"type": "USER", "name": "root@example.com"}, "permission": "READ"},
        headers=admin,
    )
    assert await service.call("GET", f"{session}/items", headers=admin) == {"session_items": []}
    await service.call("DELETE", store, headers=admin)


async def test_a_store_of_another_workspace_does_not_exist(service: SessionService, name: str) -> None:
    session = await service.session(await service.store(name))
    foreign = service.keys.header(workspace=2, admin=True)

    for method, path in (("GET", f"/{name}"), ("GET", f"{session}/items"), ("DELETE", f"/{name}"), ("DELETE", session)):
        assert await status(service, method, path, headers=foreign) == (404, "NOT_FOUND")
    assert await service.call("GET", "", headers=foreign) == {"session_stores": []}
    await service.call("POST", "", params={"session_store_id": name}, headers=foreign)


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer x", "Basic abc", "Bearer a.b.c"])
async def test_without_a_valid_token_nothing_answers(service: SessionService, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    service.client.headers.pop("authorization")
    try:
        answers = [
            await service.client.get(STORES, headers=headers),
            await service.client.post(f"{STORES}/a/sessions/b/items:append", headers=headers, json={}),
        ]
    finally:
        service.client.headers.update(service.keys.header())

    assert [(a.status_code, a.json()["error_code"]) for a in answers] == [(401, "UNAUTHENTICATED")] * 2


async def test_a_trailing_slash_is_another_address_and_sends_nobody_elsewhere(service: SessionService) -> None:
    for path in ("/", "/chats/", "/chats/sessions/"):
        assert await status(service, "GET", path) == (404, "NOT_FOUND")


async def test_a_deployment_may_leave_making_stores_to_admins(postgres: PostgresServer) -> None:
    async with session_service(postgres, store_creators="admins") as strict:
        refused = await strict.client.post(STORES, params={"session_store_id": "chats"}, json={})
        store = await strict.store("chats", headers=strict.keys.header("root@example.com", admin=True))
        bo = {"principal": {"type": "USER", "name": USER}, "permission": "WRITE"}
        admin = strict.keys.header("root@example.com", admin=True)
        await strict.call("POST", f"{store}/permissions:grant", json=bo, headers=admin)

        assert (refused.status_code, refused.json()["error_code"]) == (403, "PERMISSION_DENIED")
        assert "admin" in refused.json()["message"]
        assert await strict.session(store)


async def test_an_expired_token_is_refused(service: SessionService) -> None:
    expired = service.keys.header(ttl_s=-60)

    assert await status(service, "GET", "", headers=expired) == (401, "UNAUTHENTICATED")
