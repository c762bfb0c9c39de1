"""What broke other systems: odd names and texts, huge items, fifty at once, more readers than connections."""

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest

from libs.contracts.limits import Limits
from services.session.app import REVISIONS
from services.standalone.embedded import EmbeddedPostgres
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import Keys, database, key_directory, running, served, until
from tests.support.session import STORES, SessionService, message, session_app, session_service

SOAK = os.environ.get("SOAK") == "1"


async def data_of(service: SessionService, session: str) -> list[bytes]:
    """Each item's bytes between our own words, oldest first."""
    answer = await service.client.get(f"{STORES}{session}/items", params={"order_by": "create_time asc"})
    assert answer.status_code == 200
    return [part.partition(b',"data":')[2] for part in answer.content.split(b',"create_time":')[:-1]]


@pytest.fixture
async def service(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres, nats) as started:
        yield started


async def test_d03_names_that_look_like_patterns_touch_only_themselves(service: SessionService) -> None:
    actors = ("a.b", "a*b", "a>b", "50%", "a_b", "0190c2a0-0000-7000-8000-000000000000")
    stores = [await service.store(name) for name in ("acme", "acme-corp", "acme-1", "acmex1")]
    for store in stores:
        for n, actor in enumerate(actors):
            await service.append(await service.session(store, f"s{n}", actor), message(f"{store} {actor}"))

    found = {
        actor: await service.call("GET", f"{stores[2]}/sessions", params={"filter": f'actor_id = "{actor}"'})
        for actor in actors
    }
    await service.call("POST", f"{stores[2]}/actors:erase", json={"actor_id": "a*b"})
    await service.call("DELETE", stores[0])
    await service.clean()

    for n, actor in enumerate(actors):
        assert [session["session_id"] for session in found[actor]["sessions"]] == [f"s{n}"]
    assert len((await service.call("GET", f"{stores[2]}/sessions"))["sessions"]) == len(actors) - 1
    for store in (stores[1], stores[3]):
        for n, actor in enumerate(actors):
            assert (await service.items(f"{store}/sessions/s{n}"))[0]["data"] == message(f"{store} {actor}")
    for refused in ("acme_1", "acmeX1", "acme*", "acme.", "acme>", "acme%"):
        answer = await service.client.post(STORES, params={"session_store_id": refused}, json={})
        assert answer.status_code == 400
    await until(lambda: service.database.fetchval("select count(*) = 0 from outbox"))


async def test_d05_nul_and_half_a_pair_inside_a_batch_come_back_as_they_were(service: SessionService) -> None:
    session = await service.session(await service.store())
    data = [f'{{"type":"message","role":"user","content":"line {n}"}}' for n in range(10)]
    data[1] = '"👩‍👩‍👧‍👦 family"'
    data[2] = '"שלום \u202e עולם"'
    data[4] = r'{"type":"message","role":"user","content":"nul \u0000 here"}'
    data[7] = r'{"type":"message","role":"user","content":"half \ud83d here"}'
    body = '{"items":[' + ",".join(f'{{"data":{value}}}' for value in data) + "]}"

    answer = await service.client.post(f"{STORES}{session}/items:append", content=body)
    raw_nul = await service.client.post(
        f"{STORES}{session}/items:append", content=b'{"items":[{"data":1},{"data":"\x00"}]}'
    )

    assert answer.status_code == 200
    assert await data_of(service, session) == [value.encode() for value in data]
    assert raw_nul.status_code == 400  # a bare NUL is no JSON
    assert len(await service.items(session)) == 10
    await until(lambda: service.database.fetchval("select count(*) = 0 from outbox"))


async def test_d06_large_items_are_kept_whole_up_to_the_limit_whatever_the_broker_takes(
    service: SessionService,
) -> None:
    session = await service.session(await service.store())
    limit = Limits().item_bytes
    sizes = (10, 900_000, 10, 1_100_000, 10, limit, 10)
    data = [b'"%s"' % (b"%d" % n * size)[: size - 2] for n, size in enumerate(sizes)]

    for value in data:
        sent = await service.client.post(
            f"{STORES}{session}/items:append", content=b'{"items":[{"data":%s}]}' % value, timeout=60
        )
        assert sent.status_code == 200
    over = await service.client.post(
        f"{STORES}{session}/items:append",
        content=b'{"items":[{"data":"small"},{"data":"%s"}]}' % (b"x" * (limit - 1)),
        timeout=60,
    )

    assert (over.status_code, over.json()["error_code"]) == (413, "INVALID_PARAMETER_VALUE")
    assert "items[1]" in over.json()["message"]
    assert str(limit) in over.json()["message"]
    assert await data_of(service, session) == data
    await until(lambda: service.database.fetchval("select count(*) = 0 from outbox"))


@pytest.fixture
async def timeless(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    """A service whose database says the same moment for ever."""
    with key_directory() as keys:
        async with database(postgres, "session", REVISIONS) as dsn:
            owner = await asyncpg.connect(dsn)
            await owner.execute("create schema frozen")
            await owner.execute(
                "create function frozen.now() returns timestamptz language sql stable"
                " as $$ select '2026-05-01T09:30:00Z'::timestamptz $$"
            )
            name = urlsplit(dsn).path.lstrip("/")
            await owner.execute(f'alter database "{name}" set search_path = frozen, pg_catalog, public')
            await owner.close()
            app = session_app(dsn, keys)
            async with running(app, keys) as client:
                yield SessionService(app, client, keys, dsn)


async def test_d08_a_hundred_items_of_one_moment_keep_their_order_page_by_page(timeless: SessionService) -> None:
    session = await timeless.session(await timeless.store())

    acknowledged = [(await timeless.append(session, n))[0]["data"] for n in range(50)]
    acknowledged += [item["data"] for item in await timeless.append(session, *range(50, 100))]

    assert acknowledged == list(range(100))
    for order, wanted in (("asc", acknowledged), ("desc", acknowledged[::-1])):
        pages = await walk(timeless, session, f"create_time {order}", by_token=True)
        assert [item["data"] for item in pages] == wanted
        assert pages == await walk(timeless, session, f"create_time {order}", by_token=False)
        assert {item["create_time"] for item in pages} == {"2026-05-01T09:30:00.000000Z"}
        assert sorted(item["position"] for item in pages) == list(range(1, 101))


async def walk(service: SessionService, session: str, order: str, *, by_token: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    place: dict[str, str] = {}
    while True:
        params = {"page_size": "7", "order_by": order} | place
        page = await service.call("GET", f"{session}/items", params=params)
        found += page["session_items"]
        if "next_page_token" not in page:
            return found
        place = {"page_token": page["next_page_token"]} if by_token else {"after": str(found[-1]["position"])}


POOL = 10
READERS = 200
STORES_READ = 2000
READING_S = 30.0 if SOAK else 6.0
RECOVERY_S = 2.0


class Readers:
    """Readers of random stores, each on a connection of its own; a disconnected one comes back."""

    def __init__(self, url: str, keys: Keys, seed: int) -> None:
        self.answers: list[tuple[float, int, bool]] = []
        self._url, self._headers = url, keys.header()
        self._rng = random.Random(seed)

    async def read_until(self, end: float, *, leaves: bool) -> None:
        leaves_at = self._rng.uniform(time.monotonic(), end) if leaves else end
        while time.monotonic() < end:
            async with httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=20) as client:
                reading = asyncio.ensure_future(self._read(client, end))
                await asyncio.wait({reading}, timeout=leaves_at - time.monotonic())
                reading.cancel()  # in the middle of an answer
                with contextlib.suppress(asyncio.CancelledError):
                    await reading
            leaves_at = end

    async def _read(self, client: httpx.AsyncClient, end: float) -> None:
        while time.monotonic() < end:
            path = f"{STORES}/s{self._rng.randrange(STORES_READ)}/sessions/s1/items"
            answer = await client.get(path)
            is_honest = answer.status_code == 200 or answer.headers.get("retry-after") == "1"
            self.answers.append((time.monotonic(), answer.status_code, is_honest))


async def test_d12_two_hundred_readers_of_ten_connections_outlive_the_death_of_all_backends(
    postgres: PostgresServer,
) -> None:
    with key_directory() as keys:
        async with database(postgres, "session", REVISIONS) as dsn:
            app = session_app(dsn, keys, database_pool_size=POOL)
            direct = await asyncpg.connect(dsn)
            async with served(app) as url:
                await make_stores(direct)
                readers = Readers(url, keys, seed=12)
                began = time.monotonic()
                end = began + READING_S
                reading = [asyncio.ensure_future(readers.read_until(end, leaves=n % 2 == 0)) for n in range(READERS)]
                most = await most_backends(direct, began + READING_S / 2)
                killed_at = time.monotonic()
                killed = await direct.fetchval(f"select count(pg_terminate_backend(pid)) from ({BACKENDS}) b")
                most = max(most, await most_backends(direct, end))
                await asyncio.gather(*reading)

                async with httpx.AsyncClient(base_url=url, headers=keys.header(), timeout=20) as client:
                    afterwards = [await client.get(f"{STORES}/s{n}/sessions/s1/items") for n in range(50)]
                await until(lambda: direct.fetchval(f"select count(*) = 0 from ({BACKENDS}) b where state <> 'idle'"))
                left = await direct.fetchval(f"select count(*) from ({BACKENDS}) b")
            await direct.close()

    by_status = Counter(status for _, status, _ in readers.answers)
    late = [at - killed_at for at, status, _ in readers.answers if status != 200 and at > killed_at + RECOVERY_S]
    early = [at for at, status, _ in readers.answers if status != 200 and at < killed_at]
    assert killed >= 1
    assert all(is_honest for *_, is_honest in readers.answers)
    assert by_status.keys() <= {200, 503}
    assert (early, late) == ([], [])
    assert {answer.status_code for answer in afterwards} == {200}
    assert most <= POOL
    assert left <= POOL
    assert "too many clients" not in log_of(postgres)


def log_of(postgres: PostgresServer) -> str:
    """What the suite's own server says; one from elsewhere keeps its log to itself."""
    if not isinstance(postgres, EmbeddedPostgres):
        return ""
    return postgres.data_dir.with_name(f"{postgres.data_dir.name}.log").read_text(errors="replace")


BACKENDS = (
    "select pid, state from pg_stat_activity where datname = current_database() and application_name = 'memstream'"
)


async def most_backends(direct: "asyncpg.Connection[asyncpg.Record]", end: float) -> int:
    most = 0
    while time.monotonic() < end:
        most = max(most, await direct.fetchval(f"select count(*) from ({BACKENDS}) b"))
        await asyncio.sleep(0.1)
    return most


async def make_stores(direct: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Each with a session of one item, all of the tests' user."""
    await direct.execute(
        "insert into session_stores (store_uid, workspace_id, store_id, metadata, options, creator_type, creator)"
        " select gen_random_uuid(), 1, 's' || n, '{}', '{}', 'USER', 'ana@example.com'"
        " from generate_series(0, $1::int - 1) n",
        STORES_READ,
    )
    await direct.execute(
        "insert into store_grants (store_uid, principal_type, principal, is_creator)"
        " select store_uid, creator_type, creator, true from session_stores"
    )
    await direct.execute(
        "insert into sessions (store_uid, session_uid, session_id, actor_id, root_session_id, create_time, update_time,"
        " last_activity_time, last_position)"
        " select store_uid, gen_random_uuid(), 's1', 'ana', 's1', now(), now(), now(), 1 from session_stores"
    )
    await direct.execute(
        "insert into session_items (store_uid, session_uid, position, data, create_time)"
        " select store_uid, session_uid, 1, '\"hello\"', now() from sessions"
    )
