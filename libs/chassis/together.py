"""Work that is asked for at once is done in one go, as a database groups its commits.

Whoever comes while as much as may be is under way waits for the next go, so a go is the larger the more there is to do.
Nobody's failure is another's: what cannot be done in one go is done one by one, while others go on.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from libs.chassis.errors import ApiError, Contended, Retry

ALONE_UNDER_WAY = 4

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")


class Together(Generic[AskT, AnswerT]):
    """`answer_all` answers up to `at_once` that are `alike`, in their order; those left out at the end are asked alone.

    After a go there is a pause of `pause_s`, so that where much comes the next one has more to do; who comes alone goes
    at once.

    An `ApiError` or a `Retry`, which say that the database or the broker is away, is everybody's; after any other, and
    where some were in the way of others (`Contended`), those go together that `belong` together, and where these fail,
    each is asked alone: few of them at once, for they share what everybody else needs too.
    """

    def __init__(
        self,
        answer_all: Callable[[Sequence[AskT]], Awaitable[Sequence[AnswerT]]],
        *,
        at_once: int,
        alike: Callable[[AskT], Hashable] = lambda _: None,
        belong: Callable[[AskT], Hashable] = lambda _: None,
        under_way: int = 1,
        pause_s: float = 0.0,
    ) -> None:
        self._answer_all = answer_all
        self._at_once = at_once
        self._alike = alike
        self._belong = belong
        self._under_way = under_way
        self._pause_s = pause_s
        self._waiting: defaultdict[Hashable, list[tuple[AskT, asyncio.Future[AnswerT]]]] = defaultdict(list)
        self._going: Counter[Hashable] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    async def ask(self, ask: AskT) -> AnswerT:
        """The answer to this one; raises what became of it."""
        kind = self._alike(ask)
        waiting = self._waiting[kind]
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        waiting.append((ask, future))
        if len(waiting) == 1:
            self._begin(kind)
        return await future

    def _begin(self, kind: Hashable) -> None:
        """One more go, if there may be one; it begins when this turn of the loop has ended."""
        if self._going[kind] < self._under_way:
            self._going[kind] += 1
            self._spawn(self._go(kind))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of nobody who asks, for who asks may be cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go(self, kind: Hashable) -> None:
        waiting = self._waiting[kind]
        try:
            while waiting:
                taken = [each for each in waiting[: self._at_once] if not each[1].done()]
                del waiting[: self._at_once]
                if waiting:
                    self._begin(kind)
                if taken:
                    await self._settle(taken)
                await asyncio.sleep(self._pause_s)
        finally:
            self._going[kind] -= 1
            if not self._going[kind]:
                del self._going[kind]
                for _, future in self._waiting.pop(kind):
                    future.cancel()  # only where the go was cancelled: nobody waits for what never comes

    async def _settle(self, taken: Sequence[tuple[AskT, asyncio.Future[AnswerT]]]) -> None:
        try:
            answers = await self._answer_all([ask for ask, _ in taken])
            if not answers:
                raise RuntimeError("no answer")
        except asyncio.CancelledError:
            for _, future in taken:
                future.cancel()
            raise
        except Exception as failed:
            is_everybodys = isinstance(failed, (ApiError, Retry)) and not isinstance(failed, Contended)
            if len(taken) == 1 or is_everybodys:
                for _, future in taken:
                    if not future.done():
                        future.set_exception(failed)
                return
            answers = ()
        for (_, future), answer in zip(taken, answers, strict=False):
            if not future.done():
                future.set_result(answer)
        if rest := taken[len(answers) :]:
            self._part(rest)  # the next go does not wait for them

    def _part(self, rest: Sequence[tuple[AskT, asyncio.Future[AnswerT]]]) -> None:
        groups: defaultdict[Hashable, list[tuple[AskT, asyncio.Future[AnswerT]]]] = defaultdict(list)
        for each in rest:
            groups[self._belong(each[0])].append(each)
        if len(groups) > 1:
            for group in groups.values():
                self._spawn(self._settle(group))
            return
        alone = self._alone.setdefault(self._alike(rest[0][0]), asyncio.Semaphore(ALONE_UNDER_WAY))
        for each in rest:
            self._spawn(self._settle_alone(each, alone))

    async def _settle_alone(self, one: tuple[AskT, asyncio.Future[AnswerT]], alone: asyncio.Semaphore) -> None:
        async with alone:
            if not one[1].done():
                await self._settle([one])
