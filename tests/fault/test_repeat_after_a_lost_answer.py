"""A client that lost its answer repeats; the same key with another body is refused."""

import asyncio
from urllib.parse import urlsplit

import msgspec

from tests.support.cluster import SESSIONS, Cluster
from tests.support.load import Load, body_of, headers_of, judged
from tests.support.service import until


async def test_a_repeat_gets_the_first_positions_and_another_body_is_refused(running: Cluster, load: Load) -> None:
    session, actor = f"{load.name}-s", f"{load.name}-a"
    await running.make_session(session, actor)
    a, b, c = load.script.fact(), load.script.fact(), load.script.fact()
    path = f"{SESSIONS}/{session}/items:append"
    append = load.ledger.begin(session, actor, [a, b], key=f"{load.name} k7")
    append.tries += 1
    await send_without_reading(running, path, body_of(append), headers_of(append))
    await until(lambda: has_items(running, session))

    for _ in range(3):
        assert await load.tried(append)
    assert all(await asyncio.gather(load.tried(append), load.tried(append)))
    other = load.ledger.begin(session, actor, [c], key=append.key)
    body = f'{{"items":[{{"data":{a.data}}},{{"data":{c.data}}}]}}'
    answer = await running.request("POST", path, content=body, headers=headers_of(append))
    load.ledger.refuse(other)

    assert answer.status_code == 409
    assert msgspec.json.decode(answer.content)["error_code"] == "ABORTED"
    assert append.answers == [(1, 2)] * 5
    await judged(running, load.ledger)


async def has_items(running: Cluster, session: str) -> bool:
    return len(await running.items(session)) > 0


async def send_without_reading(running: Cluster, path: str, body: bytes, headers: dict[str, str]) -> None:
    """Cuts the connection once the whole request is on its way, before an answer can be read."""
    url = urlsplit(running.of("session")[0].url)
    _, writer = await asyncio.open_connection(url.hostname, url.port)
    head = {"Host": url.netloc, **headers, **running.keys.header(), "Content-Length": str(len(body))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
