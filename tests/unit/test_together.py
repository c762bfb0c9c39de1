"""What is asked for at once is done in one go, and nobody's failure is another's."""

import asyncio
from collections.abc import Sequence

import pytest

from libs.chassis.errors import Contended, Unavailable
from libs.chassis.together import Together


class Work:
    """Doubles numbers; each go waits for `gate`."""

    def __init__(self) -> None:
        self.goes: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.bad: set[int] = set()
        self.failure: Exception = ValueError("bad")
        self.most = 100

    async def double(self, numbers: Sequence[int]) -> list[int]:
        self.goes.append(list(numbers))
        await self.gate.wait()
        if self.bad & set(numbers):
            raise self.failure
        return [2 * number for number in numbers[: self.most]]


async def test_what_comes_in_one_turn_of_the_loop_goes_together() -> None:
    work = Work()
    together = Together(work.double, at_once=100)

    answers = await asyncio.gather(*(together.ask(number) for number in range(3)))

    assert answers == [0, 2, 4]
    assert work.goes == [[0, 1, 2]]


async def test_who_comes_meanwhile_waits_for_the_next_go() -> None:
    work = Work()
    work.gate.clear()
    together = Together(work.double, at_once=2)

    first = asyncio.ensure_future(together.ask(1))
    await asyncio.sleep(0.01)
    others = [asyncio.ensure_future(together.ask(number)) for number in (2, 3, 4)]
    await asyncio.sleep(0.01)
    under_way = list(work.goes)
    work.gate.set()

    assert await asyncio.gather(first, *others) == [2, 4, 6, 8]
    assert under_way == [[1]]
    assert work.goes == [[1], [2, 3], [4]]


async def test_only_the_alike_go_together_and_neither_waits_for_the_other() -> None:
    work = Work()
    work.gate.clear()
    together = Together(work.double, at_once=100, alike=lambda number: number % 2)

    asked = [asyncio.ensure_future(together.ask(number)) for number in (1, 2, 3, 4)]
    await asyncio.sleep(0.01)
    under_way = sorted(work.goes)
    work.gate.set()

    assert await asyncio.gather(*asked) == [2, 4, 6, 8]
    assert under_way == [[1, 3], [2, 4]]


async def test_several_may_be_under_way() -> None:
    work = Work()
    work.gate.clear()
    together = Together(work.double, at_once=100, under_way=2)

    asked = []
    for number in (1, 2, 3, 4):
        asked.append(asyncio.ensure_future(together.ask(number)))
        await asyncio.sleep(0.01)
    under_way = list(work.goes)
    work.gate.set()

    assert await asyncio.gather(*asked) == [2, 4, 6, 8]
    assert under_way == [[1], [2]]


async def test_where_more_comes_than_goes_at_once_as_many_are_under_way_as_may_be() -> None:
    work = Work()
    work.gate.clear()
    together = Together(work.double, at_once=2, under_way=3)

    asked = [asyncio.ensure_future(together.ask(number)) for number in range(8)]
    await asyncio.sleep(0.01)
    under_way = list(work.goes)
    work.gate.set()

    assert await asyncio.gather(*asked) == [2 * number for number in range(8)]
    assert under_way == [[0, 1], [2, 3], [4, 5]]


async def test_a_bad_one_is_alone_with_its_fate() -> None:
    work = Work()
    work.bad = {2}
    together = Together(work.double, at_once=100)

    answers = await asyncio.gather(*(together.ask(number) for number in (1, 2, 3)), return_exceptions=True)

    assert answers == [2, work.failure, 6]


async def test_those_that_belong_together_go_together_once_more_when_all_have_failed() -> None:
    work = Work()
    work.bad, work.failure = {2}, Contended()
    together = Together(work.double, at_once=100, belong=lambda number: number % 2)

    answers = await asyncio.gather(*(together.ask(number) for number in range(1, 7)), return_exceptions=True)

    assert answers == [2, work.failure, 6, 8, 10, 12]
    assert work.goes == [[1, 2, 3, 4, 5, 6], [1, 3, 5], [2, 4, 6], [2], [4], [6]]


async def test_of_many_that_are_asked_alone_few_are_under_way_at_once() -> None:
    work = Work()
    work.bad, work.failure = {0}, Contended()
    work.gate.clear()
    together = Together(work.double, at_once=100)

    asked = [asyncio.ensure_future(together.ask(number)) for number in range(20)]
    await asyncio.sleep(0.01)
    work.gate.set()  # for who waits now
    work.gate.clear()
    await asyncio.sleep(0.01)
    [_, *alone] = list(work.goes)
    work.gate.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)

    assert alone == [[0], [1], [2], [3]]
    assert answers == [work.failure, *(2 * number for number in range(1, 20))]


async def test_those_whom_a_deadlock_undid_are_asked_alone() -> None:
    work = Work()
    work.bad, work.failure = {2}, Contended()
    together = Together(work.double, at_once=100)

    answers = await asyncio.gather(*(together.ask(number) for number in (1, 2, 3)), return_exceptions=True)

    assert answers == [2, work.failure, 6]


async def test_when_the_database_is_away_everybody_hears_of_it_once() -> None:
    work = Work()
    work.bad, work.failure = {2}, Unavailable()
    together = Together(work.double, at_once=100)

    answers = await asyncio.gather(*(together.ask(number) for number in (1, 2, 3)), return_exceptions=True)

    assert answers == [work.failure] * 3
    assert len(work.goes) == 1


async def test_what_is_left_out_is_asked_alone() -> None:
    work = Work()
    work.most = 2
    together = Together(work.double, at_once=100)

    answers = await asyncio.gather(*(together.ask(number) for number in range(5)))

    assert answers == [0, 2, 4, 6, 8]
    assert work.goes == [[0, 1, 2, 3, 4], [2], [3], [4]]


async def test_who_gets_no_answer_even_alone_hears_of_it() -> None:
    work = Work()
    work.most = 0
    together = Together(work.double, at_once=100)

    async with asyncio.timeout(10):
        answers = await asyncio.gather(*(together.ask(number) for number in (1, 2)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [RuntimeError, RuntimeError]
    assert work.goes == [[1, 2], [1], [2]]


async def test_who_is_asked_alone_delays_nobody() -> None:
    gate = asyncio.Event()

    async def answer_slowly(numbers: Sequence[int]) -> Sequence[int]:
        if len(numbers) > 1:
            raise ValueError
        if 1 in numbers:
            await gate.wait()
        return numbers

    together = Together(answer_slowly, at_once=100)

    held, beside_it = [asyncio.ensure_future(together.ask(number)) for number in (1, 2)]
    async with asyncio.timeout(10):
        others = [await beside_it, await together.ask(3)]
    gate.set()

    assert others == [2, 3]
    assert await held == 1


async def test_who_is_cancelled_takes_nobody_along() -> None:
    work = Work()
    work.gate.clear()
    together = Together(work.double, at_once=100)

    asked = [asyncio.ensure_future(together.ask(number)) for number in (1, 2)]
    await asyncio.sleep(0.01)
    asked[0].cancel()
    work.gate.set()

    assert await asked[1] == 4
    with pytest.raises(asyncio.CancelledError):
        await asked[0]
    assert await together.ask(3) == 6


async def test_after_a_go_the_next_one_gathers_for_a_pause() -> None:
    work = Work()
    together = Together(work.double, at_once=100, pause_s=0.5)

    alone = await together.ask(1)
    first = asyncio.ensure_future(together.ask(2))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(together.ask(3))

    assert [alone, *await asyncio.gather(first, second)] == [2, 4, 6]
    assert work.goes == [[1], [2, 3]]


async def test_a_go_that_is_cancelled_leaves_nobody_waiting() -> None:
    work = Work()
    work.gate.clear()
    together = Together(work.double, at_once=1)
    asked = [asyncio.ensure_future(together.ask(number)) for number in (1, 2)]
    await asyncio.sleep(0.01)

    [go] = together._tasks
    go.cancel()
    heard = await asyncio.gather(*asked, return_exceptions=True)
    work.gate.set()

    assert [type(each) for each in heard] == [asyncio.CancelledError, asyncio.CancelledError]
    assert await together.ask(3) == 6
