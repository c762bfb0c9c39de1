"""Writers of one actor take turns; others do not wait for them."""

import asyncio
from uuid import UUID

from services.memory.turns import Turns

STORE = UUID(int=1)


async def test_one_actor_writes_one_at_a_time_and_another_does_not_wait() -> None:
    turns, inside, most = Turns(), 0, 0
    free = asyncio.Event()

    async def write(actor_id: str) -> None:
        nonlocal inside, most
        async with turns.of(STORE, actor_id):
            inside += 1
            most = max(most, inside)
            await free.wait()
            inside -= 1

    waiting = [asyncio.ensure_future(write("ana")) for _ in range(3)]
    await asyncio.sleep(0)
    other = asyncio.ensure_future(write("bo"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert inside == 2
    waiting.pop().cancel()
    free.set()
    await asyncio.gather(*waiting, other)

    assert most == 2
    assert turns._locks == {}
