"""A replay that is called off or cannot go on: all or nothing per actor, nothing held, and its state is true."""

import asyncio
import json
from datetime import datetime
from itertools import count
from typing import Any

import asyncpg
import pytest
from starlette.responses import Response

from libs.chassis.errors import Retry, Unavailable
from libs.chassis.housekeeping import Pass, run_pass
from libs.chassis.unit_of_work import Tx
from libs.contracts.ids import uuid7
from libs.contracts.requests import KnownSession, MemoriesSwapped, SwapMemories, SwapWithdrawn, WithdrawSwap
from services.distiller.access import Access
from services.distiller.domain import Pipeline
from services.distiller.replays import Replayer
from services.distiller.store import Replay, ReplayActors
from services.distiller.store.batches import expired
from services.distiller.store.replays import AtWork
from services.memory.indexing import Indexing
from services.memory.replays import Replays
from services.memory.store.swapping import swap
from tests.support import scripted_model as scripted
from tests.support.replaying import Gate, again, contents, ended, nothing_is_left, second, start
from tests.support.scripted_model import ScriptedModel, asked_lines, note
from tests.support.service import USER, chassis_of, until
from tests.support.system import Open, System

OLD = "I live in Lyon"
HELD = "select count(*) from lanes where held_by is not null"


class Swap:
    """A swap that stops at a moment: before memory begins it, during its transaction, or after the commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
        self.is_reached = False
        self.outcomes: list[str] = []
        self._open = asyncio.Event()
        whole = Replays.swap

        async def answered(replays: Replays, request: SwapMemories) -> MemoriesSwapped:
            if moment == "before":
                await self._stop()
            answer = await whole(replays, request)
            if moment == "after":
                await self._stop()
            self.outcomes.append(answer.outcome)
            return answer

        async def within(tx: Tx, indexing: Indexing, wanted: SwapMemories, now: datetime) -> MemoriesSwapped:
            swapped = await swap(tx, indexing, wanted, now)
            if moment == "during":
                await self._stop()
            return swapped

        monkeypatch.setattr(Replays, "swap", answered)
        monkeypatch.setattr("services.memory.replays.swap", within)
        monkeypatch.setattr("services.distiller.replays.SWAP_TIMEOUT_S", 1.0)

    async def _stop(self) -> None:
        self.is_reached = True
        await self._open.wait()

    def go_on(self) -> None:
        self._open.set()


async def told(memstream: System, model: ScriptedModel) -> str:
    """A pipeline that has distilled one line, and tells it anew from now on."""
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", OLD)
    await memstream.settled(pipeline)
    model.behave(second)
    return pipeline


async def held(memstream: System) -> int:
    return int(await chassis_of(memstream.apps["distiller"]).database.fetchval(HELD))


async def goes_on(memstream: System, pipeline: str) -> None:
    """Nothing of a replay is left, and the live lane distils."""
    await nothing_is_left(memstream)
    before = await contents(memstream)
    await memstream.say("ana", "s1", "One more fact")
    await memstream.settled(pipeline)
    assert await contents(memstream) == sorted([*before, again("One more fact")])


@pytest.mark.parametrize("moment", ["before", "during", "after"])
async def test_a_replay_cancelled_while_an_actor_is_swapped_swaps_it_whole_or_not_at_all(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    stopped = Swap(monkeypatch, moment)
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        replay = await start(memstream, pipeline)
        await until(lambda: stopped.is_reached)
        assert await held(memstream) == 1

        await memstream.call("DELETE", f"/{replay['name']}")

        assert await held(memstream) == 0, "at once, whatever memory does"
        if moment == "during":
            stopped.go_on()
        over = await ended(memstream, replay)
        stopped.go_on()
        await until(lambda: stopped.outcomes)

        if moment == "before":
            assert (over["state"], over["actors"]["swapped"]) == ("CANCELED", 0)
            assert not {"swapped"} & set(stopped.outcomes)
            assert await contents(memstream) == [OLD]
        else:
            assert (over["state"], over["actors"]["swapped"]) == ("SUCCEEDED", 1)
            assert await contents(memstream) == [again(OLD)]
        await goes_on(memstream, pipeline)


async def test_a_swap_that_is_asked_for_twice_is_withdrawn_although_its_second_question_was_answered(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first may be on its way still, and would be made after the end."""
    whole, go_on, questions = Replays.swap, asyncio.Event(), count(1)
    outcomes: list[str] = []
    beyond = KnownSession(session_uid=uuid7(), session_id="s2", position=9)

    async def swap_later(replays: Replays, request: SwapMemories) -> MemoriesSwapped:
        if next(questions) > 1:
            return MemoriesSwapped(outcome="behind", ahead=[beyond])
        await go_on.wait()
        answer = await whole(replays, request)
        outcomes.append(answer.outcome)
        return answer

    withdraw = Replays.withdraw
    withdrawn: list[str] = []

    async def withdrawing(replays: Replays, request: WithdrawSwap) -> SwapWithdrawn:
        withdrawn.append(request.actor_id)
        return await withdraw(replays, request)

    monkeypatch.setattr(Replays, "swap", swap_later)
    monkeypatch.setattr(Replays, "withdraw", withdrawing)
    monkeypatch.setattr("services.distiller.replays.SWAP_TIMEOUT_S", 1.0)
    async with opened() as memstream:
        pipeline = await told(memstream, model)

        over = await ended(memstream, await start(memstream, pipeline))
        go_on.set()
        await until(lambda: outcomes)

        assert over["state"] == "FAILED"
        assert withdrawn == ["ana"]
        assert outcomes != ["swapped"]
        assert await contents(memstream) == [OLD]
        await goes_on(memstream, pipeline)


async def test_a_swap_that_takes_long_delays_nobody_elses_replay(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, go_on = Replays.swap, asyncio.Event()
    asked: list[str] = []

    async def swap_slowly(replays: Replays, request: SwapMemories) -> MemoriesSwapped:
        asked.append(request.actor_id)
        if request.actor_id == "ana":
            await go_on.wait()
        return await whole(replays, request)

    monkeypatch.setattr(Replays, "swap", swap_slowly)
    async with opened() as memstream:
        slow = await told(memstream, model)
        other = await memstream.pipeline("talks", "trial")
        await memstream.say("bo", "s2", OLD, chats="talks")
        await memstream.settled(other, "talks")
        first = await start(memstream, slow)
        await until(lambda: asked)

        over = await ended(memstream, await start(memstream, other))

        assert (over["state"], asked) == ("SUCCEEDED", ["ana", "bo"])
        go_on.set()
        assert (await ended(memstream, first))["state"] == "SUCCEEDED"


async def test_an_attempt_whose_failure_cannot_be_noted_leaves_the_others_to_their_replay(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next step would begin them once more, and nobody would stop them."""
    whole, put_off = Replayer._follow, ReplayActors.put_off
    is_at_work, go_on, is_unnoted = asyncio.Event(), asyncio.Event(), asyncio.Event()
    begun: list[str] = []
    stopped: list[str] = []
    moving: list[asyncio.Task[None]] = []
    replayers: list[Replayer] = []

    async def follow(replayer: Replayer, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        if actor.actor_id == "bo" and not go_on.is_set():
            replayers.append(replayer)
            moving.extend(replayer._moving.values())
            begun.append(actor.actor_id)
            is_at_work.set()
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                stopped.append(actor.actor_id)
                raise
        elif not is_unnoted.is_set():
            await is_at_work.wait()
            raise Retry("memory is away")
        await whole(replayer, replay, pipeline, actor)

    async def cannot(*args: Any) -> None:
        if not is_unnoted.is_set():
            is_unnoted.set()
            raise Unavailable
        await put_off(*args)

    monkeypatch.setattr(Replayer, "_follow", follow)
    monkeypatch.setattr(ReplayActors, "put_off", cannot)
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        await memstream.say("bo", "s2", OLD)
        await memstream.settled(pipeline)
        replay = await start(memstream, pipeline)
        await is_unnoted.wait()

        _, under_way = await asyncio.wait(moving, timeout=0.5)
        begun_meanwhile = list(begun)
        await replayers[0].close()
        go_on.set()

        assert len(under_way) == 1
        assert begun_meanwhile == stopped == ["bo"]
        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"
        await nothing_is_left(memstream)


async def test_a_swap_that_memory_made_counts_although_no_answer_ever_came(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.distiller.replays.DELAYS_S", (0.0,))
    stopped = Swap(monkeypatch, "after")
    async with opened() as memstream:
        pipeline = await told(memstream, model)

        over = await ended(memstream, await start(memstream, pipeline))
        stopped.go_on()

        assert (over["state"], over["actors"]["swapped"]) == ("SUCCEEDED", 1)
        assert await contents(memstream) == [again(OLD)]
        await goes_on(memstream, pipeline)


@pytest.mark.parametrize("what", ["replay", "memory-stores/facts", "session-stores/chats"])
async def test_a_live_lane_held_for_the_tail_is_let_go_when_the_replay_is_over(
    opened: Open, model: ScriptedModel, what: str
) -> None:
    first, tail = Gate(second), Gate(second)
    first.close()
    tail.close()
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        model.behave(first, second, tail)
        replay = await start(memstream, pipeline)
        await until(lambda: first.waiting)
        await memstream.say("ana", "s1", "I play chess")
        await memstream.settled(pipeline)
        first.open()
        await until(lambda: tail.waiting)
        assert await held(memstream) == 1

        await memstream.call("DELETE", f"/{replay['name'] if what == 'replay' else what}")

        async def is_let_go() -> bool:
            return not await held(memstream)

        await until(is_let_go)
        over = await ended(memstream, replay)
        tail.open()
        assert over["state"] == ("CANCELED" if what == "replay" else "FAILED")
        await nothing_is_left(memstream)


@pytest.mark.parametrize("moment", ["distilling", "before", "during"])
@pytest.mark.parametrize("store", ["memory-stores/facts", "session-stores/chats"])
async def test_a_store_deleted_during_a_replay_ends_it_and_nothing_is_held(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, store: str, moment: str
) -> None:
    gate, stopped = Gate(second), Swap(monkeypatch, moment)
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        if moment == "distilling":
            gate.close()
            model.behave(gate)
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting or stopped.is_reached)

        deleting = asyncio.create_task(memstream.call("DELETE", f"/{store}"))
        if moment == "during":
            stopped.go_on()
        await deleting
        over = await ended(memstream, replay)
        stopped.go_on()
        gate.open()

        if moment == "during":
            assert over["state"] in ("SUCCEEDED", "FAILED")
        else:
            assert over["state"] == "FAILED"
            assert "store was deleted" in over["error"]
        await nothing_is_left(memstream)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (asyncpg.DataError("never"), "REFUSED: memory.store.shadow"),
        (RuntimeError("not now"), "memory.store.shadow: RuntimeError"),
    ],
    ids=["for ever", "every time"],
)
async def test_a_replay_whose_shadow_memory_refuses_fails_and_says_why(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, failure: Exception, reason: str
) -> None:
    async def refuses(*_: Any) -> bool:
        raise failure

    monkeypatch.setattr("services.distiller.replays.DELAYS_S", (0.0,))
    monkeypatch.setattr("services.distiller.replays.TRIES", 2)
    monkeypatch.setattr("services.memory.replays.make_shadow", refuses)
    async with opened() as memstream:
        pipeline = await told(memstream, model)

        over = await ended(memstream, await start(memstream, pipeline))

        assert over["state"] == "FAILED"
        assert reason in over["error"]
        assert "replay again" in over["error"]
        assert await contents(memstream) == [OLD]
        await goes_on(memstream, pipeline)


async def test_a_replay_that_waits_for_memory_can_be_cancelled(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def refuses(*_: Any) -> bool:
        nonlocal tries
        tries += 1
        raise RuntimeError

    monkeypatch.setattr("services.memory.replays.make_shadow", refuses)
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        replay = await start(memstream, pipeline)
        await until(lambda: tries)

        await memstream.call("DELETE", f"/{replay['name']}")

        assert (await ended(memstream, replay))["state"] == "CANCELED"
        await goes_on(memstream, pipeline)


@pytest.mark.parametrize("moment", ["distilling", "before"])
async def test_who_may_not_write_there_any_more_replays_nothing_into_it(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr("services.distiller.access.BELIEVED_S", 0.0)
    gate, stopped = Gate(second), Swap(monkeypatch, moment)
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        eve = memstream.keys.header("eve@example.com")
        await memstream.call("POST", "/memory-stores?managed_memory_store_id=trial", json={}, headers=eve)
        ana = {"principal": {"name": USER, "principal_type": "USER"}}
        grants = "/memory-stores/trial/permissions"
        await memstream.call("POST", f"{grants}:grant", json=ana | {"permission": "WRITE"}, headers=eve)
        if moment == "distilling":
            gate.close()
            model.behave(gate)
        replay = await start(memstream, pipeline, memory_store="trial")
        await until(lambda: gate.waiting or stopped.is_reached)

        await memstream.call("POST", f"{grants}:revoke", json=ana, headers=eve)
        over = await ended(memstream, replay)
        stopped.go_on()
        gate.open()

        assert over["state"] == "FAILED"
        assert "PERMISSION_DENIED: the pipeline's creator needs WRITE on memory-stores/trial" in over["error"]
        await memstream.call("POST", f"{grants}:grant", json=ana | {"permission": "READ"}, headers=eve)
        assert await contents(memstream, store="trial") == []
        await nothing_is_left(memstream)


async def test_a_replay_that_waits_for_another_service_holds_no_live_lane(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away, check = False, Access.check

    async def checked(access: Access, pipeline: Pipeline, *, believed: bool = True) -> None:
        if is_away:
            raise Retry("session.store.authorize: TimeoutError")
        await check(access, pipeline, believed=believed)

    monkeypatch.setattr(Access, "check", checked)
    stopped = Swap(monkeypatch, "before")
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        replay = await start(memstream, pipeline)
        await until(lambda: stopped.is_reached)

        is_away = True

        async def is_let_go() -> bool:
            return not await held(memstream)

        await until(is_let_go)
        is_away = False
        stopped.go_on()

        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"
        assert await contents(memstream) == [again(OLD)]
        await goes_on(memstream, pipeline)


async def test_a_swap_that_was_made_long_before_its_answer_comes_is_kept_in_its_place(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair makes it again before what the live lane has told since."""
    stopped, answers = Swap(monkeypatch, "after"), asyncio.Event()
    withdraw = Replays.withdraw

    async def withdrawn(replays: Replays, request: WithdrawSwap) -> SwapWithdrawn:
        await answers.wait()
        return await withdraw(replays, request)

    monkeypatch.setattr(Replays, "withdraw", withdrawn)
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        replay = await start(memstream, pipeline)
        await until(lambda: stopped.is_reached)
        await memstream.call("DELETE", f"/{replay['name']}")
        await memstream.say("ana", "s1", "I play chess")
        await memstream.settled(pipeline)
        answers.set()

        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"
        stopped.go_on()
        kept = await chassis_of(memstream.apps["distiller"]).database.fetch(
            "select swap_id = batch_id as is_swap from batches where coalesce(swap_id, batch_id) = batch_id"
            " and state = 'settled' order by settled_at"
        )
        assert [row["is_swap"] for row in kept] == [None, True, None]


async def test_what_a_long_replay_gathered_is_kept_with_its_swap(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Swap(monkeypatch, "before")
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        replay = await start(memstream, pipeline)
        await until(lambda: stopped.is_reached)
        distiller = chassis_of(memstream.apps["distiller"])
        await distiller.database.write("update batches set settled_at = settled_at - interval '8 days'")

        await run_pass(distiller.unit_of_work, Pass("expire_batches", expired))
        stopped.go_on()

        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"
        kept = await distiller.database.fetch(
            "select swap_id = batch_id as is_swap from batches where state = 'settled' order by 1"
        )
        assert [row["is_swap"] for row in kept] == [False, True]


def lives_in(suffix: str) -> scripted.Behaviour:
    """What is said is where somebody lives, in one slot."""

    async def answer(body: dict[str, Any]) -> Response:
        home = {"path": "/home/city.md", "kind": "state"}
        changes = [note(number, text) | home | {"statement": text + suffix} for number, text in asked_lines(body)]
        return scripted.completion(json.dumps({"changes": changes}))

    return answer


async def test_what_a_live_lane_tells_while_a_replay_waits_is_not_overwritten(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away, check = False, Access.check

    async def checked(access: Access, pipeline: Pipeline, *, believed: bool = True) -> None:
        if is_away and pipeline.parent_uid is not None:
            raise Retry("session.store.authorize: TimeoutError")
        await check(access, pipeline, believed=believed)

    monkeypatch.setattr(Access, "check", checked)
    stopped = Swap(monkeypatch, "before")
    async with opened() as memstream:
        model.behave(lives_in(""))
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", OLD)
        await memstream.settled(pipeline)
        model.behave(lives_in(", as told again"))
        replay = await start(memstream, pipeline)
        await until(lambda: stopped.is_reached)
        is_away = True

        async def is_let_go() -> bool:
            return not await held(memstream)

        await until(is_let_go)
        await memstream.say("ana", "s2", "I live in Oslo now")
        await memstream.settled(pipeline)
        is_away = False
        stopped.go_on()

        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"
        assert "behind" in stopped.outcomes
        assert await contents(memstream) == [again("I live in Oslo now")]
        await nothing_is_left(memstream)


async def test_what_an_extraction_knew_before_the_live_lane_holds_no_replay_up(
    opened: Open, model: ScriptedModel
) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", OLD)
        await memstream.call("POST", f"/{pipeline}/run", json={})
        await memstream.settled(pipeline)
        gate = Gate(second)
        gate.close()
        model.behave(gate, scripted.valid, second)
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting)
        await memstream.say("ana", "s1", "I play chess")
        asked = {"memory_store": "memory-stores/facts"}
        await memstream.call("POST", "/session-stores/chats/sessions/s1/extractions", json=asked)
        gate.open()

        over = await ended(memstream, replay)

        assert over["state"] == "SUCCEEDED"
        assert await contents(memstream) == sorted([again(OLD), "I play chess"])
        await nothing_is_left(memstream)


async def test_a_replay_that_cannot_reach_its_goal_says_so_and_lets_the_live_lane_go(
    opened: Open, model: ScriptedModel
) -> None:
    gate = Gate(second)
    async with opened() as memstream:
        pipeline = await told(memstream, model)
        gate.close()
        model.behave(gate)
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting)
        hidden = "pipeline_uid in (select hidden_uid from replays)"
        database = chassis_of(memstream.apps["distiller"]).database
        await database.write(f"update lane_sessions set known_position = 9, goal_position = 9 where {hidden}")
        model.behave(second)
        gate.open()

        over = await ended(memstream, replay)

        assert over["state"] == "FAILED"
        assert "cannot be read" in over["error"]
        assert await contents(memstream) == [OLD]
        await goes_on(memstream, pipeline)
