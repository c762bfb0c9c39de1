"""`memstream memory pipeline`: what distils a session store into a memory store, and how it gets on."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memstream.commands.groups import ListingGroup, group
from memstream.commands.options import PageSize, PageToken, Wait, WaitTimeout, Yes, text_of
from memstream.commands.progress import waited
from memstream.commands.views import Column, Listing, last, show_details, show_done, show_list, show_pages, when
from memstream.console import Console, console
from memstream.errors import Aborted, MemstreamError
from memstream.values import PAGE_MAX, bare, given, segment

if TYPE_CHECKING:
    from memstream.transport import Transport

COLLECTION = "memory-pipelines"
RUN_NAME = re.compile(rf"{COLLECTION}/[^/\s]+/runs/\d+")
REPLAY_NAME = re.compile(rf"{COLLECTION}/[^/\s]+/replays/[0-9a-f-]+")
UNFINISHED = ("PENDING", "RUNNING")
PIPELINES = Listing(
    "memory_pipelines",
    "pipeline",
    (
        Column("pipeline", last("name"), is_id=True),
        Column("session store", last("session_store"), is_id=True),
        Column("memory store", last("memory_store"), is_id=True),
        Column("trigger", "dreamer_policy.trigger"),
        Column("error", "error"),
        Column("model", "dreamer_policy.model"),
        Column("display name", "display_name"),
    ),
)
RUNS = Listing(
    "pipeline_runs",
    "run",
    (
        Column("run", "name", is_id=True),
        Column("state", "state"),
        Column("started", when("create_time")),
        Column("ended", when("end_time")),
        Column("error", "error"),
    ),
)
REPLAYS = Listing(
    "replays",
    "replay",
    (
        Column("replay", "name", is_id=True),
        Column("state", "state"),
        Column("actors", lambda row: "{swapped} of {total}".format(**row["actors"])),
        Column("started", when("create_time")),
        Column("ended", when("end_time")),
        Column("into", last("memory_store")),
        Column("error", "error"),
    ),
)
LANES = Listing(
    "lanes",
    "lane",
    (
        Column("actor", "actor_id", is_id=True),
        Column("state", "state"),
        Column("behind", "behind"),
        Column("attempts", "attempts"),
        Column("due", when("due_time")),
        Column("reason", "reason"),
    ),
)
USAGE = Listing(
    "usage",
    "line",
    (
        Column("day", "day"),
        Column("model", "model", is_id=True),
        Column("outcome", "outcome"),
        Column("calls", "calls"),
        Column("prompt tokens", "prompt_tokens"),
        Column("completion tokens", "completion_tokens"),
    ),
)


class Trigger(str, Enum):
    manual = "manual"
    scheduled = "scheduled"
    continuous = "continuous"

    @property
    def sent(self) -> str:
        return "MANUAL_ONLY" if self is Trigger.manual else self.value.upper()


class Clearable(str, Enum):
    quiet_period_s = "quiet_period_s"
    max_wait_s = "max_wait_s"
    daily_token_budget = "daily_token_budget"  # noqa: S105 - a field's name


Name = Annotated[str, typer.Argument(help="The pipeline, by its id or resource name.", show_default=False)]
DisplayName = Annotated[str | None, typer.Option("--display-name", help="For people.")]
Model = Annotated[str | None, typer.Option("--model", help="What distils; the server's default when absent or empty.")]
Instructions = Annotated[str | None, typer.Option("--instructions", help="What to keep; @file reads a file.")]
ReplayName = Annotated[
    str, typer.Argument(help="memory-pipelines/<id>/replays/<id>, as `replay` printed it.", show_default=False)
]
Triggered = Annotated[
    Trigger | None,
    typer.Option(
        "--trigger", help="When it runs: when started, about once a day, or as conversations go on.", show_default=False
    ),
]
QuietPeriod = Annotated[
    float | None,
    typer.Option("--quiet-period-s", min=0, help="Continuous: how long an actor says nothing more before it runs."),
]
MaxWait = Annotated[
    float | None, typer.Option("--max-wait-s", min=0, help="Continuous: but so long after the first at most.")
]
Budget = Annotated[
    int | None, typer.Option("--daily-token-budget", min=0, help="Tokens that it may spend on models in a day (UTC).")
]
From = Annotated[datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="The first day, in UTC.")]
To = Annotated[datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="The last day, included.")]

pipeline = group("Pipelines, which distil a session store into a memory store.")
runs = group("The runs of a pipeline.", ListingGroup)
replays = group("The replays of a pipeline.", ListingGroup)
pipeline.add_typer(runs, name="runs")
pipeline.add_typer(replays, name="replays")


@pipeline.command("create")
def create(
    ctx: typer.Context,
    memory_store: Annotated[str, typer.Option("--memory-store", help="Where to.", show_default=False)],
    session_store: Annotated[str, typer.Option("--session-store", help="What from.", show_default=False)],
    model: Model = None,
    display_name: DisplayName = None,
    instructions: Instructions = None,
    trigger: Triggered = None,
    quiet_period_s: QuietPeriod = None,
    max_wait_s: MaxWait = None,
    daily_token_budget: Budget = None,
) -> None:
    """Make a pipeline; there may be one between two stores."""
    out = console(ctx)
    policy = given(
        trigger=(trigger or Trigger.manual).sent,
        model=model or None,
        instructions=_instructions(instructions),
        quiet_period_s=quiet_period_s,
        max_wait_s=max_wait_s,
        daily_token_budget=daily_token_budget,
    )
    body = given(
        session_store=f"session-stores/{bare('session-stores', session_store)}",
        memory_store=f"memory-stores/{bare('memory-stores', memory_store)}",
        display_name=display_name,
        dreamer_policy=policy,
    )
    with out.rest() as rest:
        raw = rest.create(f"/{COLLECTION}", body=body)
    made = raw["name"].rpartition("/")[2]
    show_done(out, raw, f"Created {raw['name']}", f"memstream memory pipeline run {made}")
    if trigger is None:
        out.note(
            "note: without --trigger it runs only when it is started;"
            f" `memstream memory pipeline update {made} --trigger continuous` makes it follow the conversations"
        )


@pipeline.command("list")
def list_pipelines(
    ctx: typer.Context,
    session_store: Annotated[str | None, typer.Option("--session-store", help="Only those that read it.")] = None,
    memory_store: Annotated[str | None, typer.Option("--memory-store", help="Only those that write to it.")] = None,
    page_size: Annotated[int, typer.Option("--page-size", min=0, max=100, help="How many at once.")] = 25,
    page_token: PageToken = None,
) -> None:
    """List pipelines both of whose stores you may read, oldest first; those of a store all at once."""
    out = console(ctx)
    wanted = given(
        session_store=session_store and f"session-stores/{bare('session-stores', session_store)}",
        memory_store=memory_store and f"memory-stores/{bare('memory-stores', memory_store)}",
    )
    if not wanted:
        _list(out, PIPELINES, f"/{COLLECTION}", {"page_size": page_size}, page_token)
        return
    with out.rest() as rest:
        pages = rest.pages(f"/{COLLECTION}", PIPELINES.field, page_size=PAGE_MAX, first={"page_token": page_token})
        found = [one for one in pages if wanted.items() <= {name: one[name] for name in wanted}.items()]
    show_list(out, PIPELINES, {PIPELINES.field: found})


@pipeline.command("get")
def get(ctx: typer.Context, name: Name) -> None:
    """Show a pipeline."""
    out = console(ctx)
    with out.rest() as rest:
        raw = rest.get(_path(name))
    show_details(out, raw["name"], raw)


@pipeline.command("update")
def update(
    ctx: typer.Context,
    name: Name,
    display_name: DisplayName = None,
    model: Model = None,
    instructions: Instructions = None,
    trigger: Triggered = None,
    quiet_period_s: QuietPeriod = None,
    max_wait_s: MaxWait = None,
    daily_token_budget: Budget = None,
    clear: Annotated[
        list[Clearable] | None, typer.Option("--clear", help="Gives it what it has when absent; may be repeated.")
    ] = None,
) -> None:
    """Change a pipeline; an empty --model gives it the server's default."""
    policy = given(
        model=model,
        instructions=_instructions(instructions),
        trigger=trigger and trigger.sent,
        quiet_period_s=quiet_period_s,
        max_wait_s=max_wait_s,
        daily_token_budget=daily_token_budget,
    )
    cleared = [field.value for field in clear or ()]
    if both := policy.keys() & set(cleared):
        raise typer.BadParameter(f"{min(both)} is both given and cleared")
    mask = [*given(display_name=display_name), *(f"dreamer_policy.{field}" for field in (*policy, *cleared))]
    if not mask:
        raise MemstreamError(
            "there is nothing to update", hint="`memstream memory pipeline update --help` lists what can be"
        )
    out = console(ctx)
    raw = _update(out, name, mask, {"dreamer_policy": policy, **given(display_name=display_name)})
    show_done(out, raw, f"Updated {raw['name']}")


@pipeline.command("pause")
def pause(ctx: typer.Context, name: Name) -> None:
    """Let it run only when it is started; an active run goes on."""
    out = console(ctx)
    if _trigger(out, name) == Trigger.manual.sent:
        raise MemstreamError(f"pipeline {name} is paused already: it runs only when it is started")
    raw = _enable(out, name, False)
    show_done(out, raw, f"Paused {raw['name']}", f"memstream memory pipeline resume {name}")


@pipeline.command("resume")
def resume(ctx: typer.Context, name: Name) -> None:
    """Let it go on as before it was paused; about once a day when it has never run by itself."""
    out = console(ctx)
    known = _trigger(out, name)
    if known != Trigger.manual.sent:
        raise MemstreamError(f"pipeline {name} is not paused: its trigger is {known}")
    raw = _enable(out, name, True)
    trigger = raw["dreamer_policy"]["trigger"]
    follow = f"memstream memory pipeline update {name} --trigger continuous"
    steps = (follow,) if trigger == Trigger.scheduled.sent else ()
    show_done(out, raw, f"Resumed {raw['name']}: {trigger}", *steps)


@pipeline.command("delete")
def delete(ctx: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a pipeline with its runs; memories are kept."""
    out = console(ctx)
    out.confirm(f"Delete pipeline {name} with its runs?", yes=yes)
    with out.rest() as rest:
        rest.send("DELETE", _path(name))
    show_done(out, {"deleted": name}, f"Deleted pipeline {name}")


@pipeline.command("run")
def run(ctx: typer.Context, name: Name, wait: Wait = False, wait_timeout: WaitTimeout = 3600) -> None:
    """Distil everything that is stored now; one run at a time."""
    _begin(console(ctx), "run", f"{_path(name)}/run", {}, RUN_NAME, wait, wait_timeout)


@pipeline.command("lanes")
def lanes(
    ctx: typer.Context,
    name: Name,
    state: Annotated[str | None, typer.Option("--state", help="Such as due, running or parked.")] = None,
    actor_id: Annotated[str | None, typer.Option("--actor-id", help="Only this one's.")] = None,
    page_size: PageSize = None,
    page_token: PageToken = None,
) -> None:
    """Show where the pipeline stands with each actor."""
    params = {"state": state, "actor_id": actor_id, "page_size": page_size}
    _list(console(ctx), LANES, f"{_path(name)}/lanes", params, page_token)


@pipeline.command("redrive")
def redrive(
    ctx: typer.Context,
    name: Name,
    actor_id: Annotated[str | None, typer.Option("--actor-id", help="Only this one's.")] = None,
) -> None:
    """Try lanes that failed, wait or are parked again at once; their attempts are counted from 0."""
    out = console(ctx)
    with out.rest() as rest:
        raw = rest.send("POST", f"{_path(name)}/lanes:redrive", body=given(actor_id=actor_id))
    count = raw["redriven"]
    show_done(out, raw, f"Redrove {count} lane{'s' * (count != 1)}", f"memstream memory pipeline lanes {name}")
    if raw.get("over_budget"):
        out.note(
            "note: the daily_token_budget is spent, so they wait for the next day (UTC);"
            f" `memstream memory pipeline update {name} --clear daily_token_budget` takes it away"
        )


@pipeline.command("usage")
def usage(
    ctx: typer.Context,
    name: Name,
    since: From = None,
    until: To = None,
) -> None:
    """Show calls and tokens by day, model and outcome."""
    out = console(ctx)
    params = {"from": since and since.date().isoformat(), "to": until and until.date().isoformat()}
    with out.rest() as rest:
        raw = rest.get(f"{_path(name)}/usage", params)
    show_list(out, USAGE, raw)
    if not raw["usage"]:
        out.note("note: the built-in model costs nothing, and its calls are not listed")


@pipeline.command("replay")
def replay(
    ctx: typer.Context,
    name: Name,
    actor_id: Annotated[str | None, typer.Option("--actor-id", help="Only this one's conversations.")] = None,
    memory_store: Annotated[str | None, typer.Option("--memory-store", help="Into another store.")] = None,
    yes: Yes = False,
    wait: Wait = False,
    wait_timeout: WaitTimeout = 3600,
) -> None:
    """Distil everything anew, and put it in the place of what was distilled."""
    out = console(ctx)
    whose = f"everything of {actor_id}" if actor_id else "everything"
    out.confirm(f"Distil {whose} anew? The model is asked again.", yes=yes)
    target = memory_store and f"memory-stores/{bare('memory-stores', memory_store)}"
    body = given(actor_id=actor_id, memory_store=target)
    _begin(out, "replay", f"{_path(name)}:replay", body, REPLAY_NAME, wait, wait_timeout)


@runs.command("list")
def list_runs(
    ctx: typer.Context,
    name: Name,
    page_size: Annotated[int, typer.Option("--page-size", min=0, help="How many at once.")] = 50,
    page_token: PageToken = None,
) -> None:
    """List runs, the latest started first."""
    _list(console(ctx), RUNS, f"{_path(name)}/runs", {"page_size": page_size}, page_token)


@runs.command("get")
def get_run(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(help="memory-pipelines/<id>/runs/<digits>, as `run` printed it.", show_default=False)
    ],
) -> None:
    """Show a run."""
    _show_named(console(ctx), name, RUN_NAME, "runs/<digits>")


@replays.command("list")
def list_replays(ctx: typer.Context, name: Name, page_size: PageSize = None, page_token: PageToken = None) -> None:
    """List replays, the latest started first."""
    _list(console(ctx), REPLAYS, f"{_path(name)}/replays", {"page_size": page_size}, page_token)


@replays.command("get")
def get_replay(ctx: typer.Context, name: ReplayName) -> None:
    """Show how far a replay is."""
    _show_named(console(ctx), name, REPLAY_NAME, "replays/<id>")


@replays.command("cancel")
def cancel_replay(ctx: typer.Context, name: ReplayName) -> None:
    """End a replay; those actors whose turn had not come keep what there was."""
    _check_named(name, REPLAY_NAME, "replays/<id>")
    out = console(ctx)
    with out.rest() as rest:
        rest.send("DELETE", f"/{name}")
    show_done(out, {"canceled": name}, f"Canceled {name}")


def _begin(
    out: Console, what: str, path: str, body: dict[str, Any], named: re.Pattern[str], wait: bool, wait_timeout: int
) -> None:
    """Starts a run or a replay and shows it; with `wait` what became of it, and a failure unless it succeeded."""
    get = f"memstream memory pipeline {what}s get"

    def late(seen: dict[str, Any]) -> MemstreamError:
        return MemstreamError(
            f"{seen['name']} is {seen['state']} after {wait_timeout} s and goes on by itself: {_stand(rest, seen)}",
            hint=_more(seen),
        )

    with out.rest() as rest:
        try:
            raw = rest.create(path, body=body)
        except Aborted as aborted:
            if active := named.search(aborted.message):
                aborted.hint = f"`{get} {active[0]}` shows the active one"
            raise
        if wait:
            waiting = f"waiting for {what} {raw['name']}"
            raw = waited(
                out,
                waiting,
                lambda: rest.get(f"/{raw['name']}"),
                _has_ended,
                late,
                timeout_s=wait_timeout,
                stand=lambda seen: _stand(rest, seen),
            )
    done = f"{what.capitalize()} {raw['name']}: {raw['state']}"
    show_done(out, raw, done, *(() if _has_ended(raw) else (f"{get} {raw['name']}",)))
    if wait and raw["state"] != "SUCCEEDED":
        why = raw.get("error") or "no reason is known"
        raise MemstreamError(f"{raw['name']} ended as {raw['state']}: {why}", hint=_more(raw))


def _stand(rest: Transport, raw: dict[str, Any]) -> str:
    """How far a run or a replay is."""
    if "actors" in raw:
        return "{swapped} of {total} actors swapped, {failed} failed".format(**raw["actors"])
    from memstream.distilling import BUSY, why

    path = f"/{raw['name'].partition('/runs/')[0]}/lanes"
    lanes = [
        lane
        for state in (*BUSY, "parked")
        for lane in rest.pages(path, LANES.field, page_size=PAGE_MAX, params={"state": state})
    ]
    if not lanes:
        return "no actor is behind"
    states = Counter(lane["state"] for lane in lanes)
    told = why(lane.get("reason") for lane in lanes)
    return f"actors: {', '.join(f'{count} {state}' for state, count in states.items())}{told and f' ({told})'}"


def _more(raw: dict[str, Any]) -> str:
    """The command that tells more of a run or a replay."""
    pipeline_id, _, what = raw["name"].removeprefix(f"{COLLECTION}/").partition("/")
    if what.startswith("runs/"):
        return f"`memstream memory pipeline lanes {pipeline_id}` tells of each actor"
    return f"`memstream memory pipeline replays get {raw['name']}` shows how far it is"


def _show_named(out: Console, name: str, pattern: re.Pattern[str], form: str) -> None:
    _check_named(name, pattern, form)
    with out.rest() as rest:
        raw = rest.get(f"/{name}")
    show_details(out, name, raw)


def _check_named(name: str, pattern: re.Pattern[str], form: str) -> None:
    if pattern.fullmatch(name) is None:
        raise typer.BadParameter(f"'{name}' is not {COLLECTION}/<id>/{form}")


def _has_ended(raw: dict[str, Any]) -> bool:
    return raw["state"] not in UNFINISHED


def _list(out: Console, listing: Listing, path: str, params: dict[str, Any], page_token: str | None) -> None:
    with out.rest() as rest:
        show_pages(out, listing, lambda token: rest.get(path, {**params, "page_token": token}), page_token)


def _path(name: str) -> str:
    return f"/{COLLECTION}/{segment(bare(COLLECTION, name))}"


def _trigger(out: Console, name: str) -> str:
    with out.rest() as rest:
        return str(rest.get(_path(name))["dreamer_policy"]["trigger"])


def _enable(out: Console, name: str, enabled: bool) -> dict[str, Any]:
    return _update(out, name, ["dreamer_policy.enabled"], {"dreamer_policy": {"enabled": enabled}})


def _update(out: Console, name: str, mask: list[str], body: dict[str, Any]) -> dict[str, Any]:
    with out.rest() as rest:
        named = {"name": f"{COLLECTION}/{bare(COLLECTION, name)}", **body}
        return rest.send("PATCH", _path(name), params={"update_mask": ",".join(mask)}, body=named)


def _instructions(text: str | None) -> str | None:
    return text_of(text[1:]) if text is not None and text.startswith("@") else text
