"""Waits until all that a session store holds is distilled, by a run: it fixes its goal from the store when it starts.

So an event still under way is waited for, and a pipeline that only runs when started is served too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from memstream.errors import Aborted, MemstreamError
from memstream.pipelines import Pipeline
from memstream.records import PipelineRun

POLL_S = 0.25
REASONS_SHOWN = 3
BUSY = ("waiting", "due", "running", "unanswered", "waiting_provider")

Report = Callable[[int, str], None]


def wait_until_distilled(pipeline: Pipeline, deadline_s: float, report: Report) -> list[str]:
    """The actors whose lanes are parked. Raises past the deadline.

    `report` hears how many items are behind, and why, where something failed.
    """
    deadline = time.monotonic() + deadline_s
    run = _wait(pipeline, _start(pipeline, deadline, report), deadline, report)
    report(0, "")
    if run.state == "SUCCEEDED":
        return []
    parked = [lane.actor_id for lane in pipeline.lanes(state="parked", page_size=100)]
    if run.state == "FAILED" and parked:
        return parked
    raise MemstreamError(f"{run.name} ended as {run.state}: {run.error or 'no reason is known'}")


def why(reasons: Iterable[str | None]) -> str:
    """The most frequent ones of lanes, in a line."""
    known = Counter(reason for reason in reasons if reason)
    return "; ".join(reason for reason, _ in known.most_common(REASONS_SHOWN))


def _start(pipeline: Pipeline, deadline: float, report: Report) -> PipelineRun:
    while True:
        try:
            return pipeline.run()
        except Aborted:
            # The active run may have fixed its goal before our last append.
            for run in pipeline.runs(page_size=10):
                if not run.has_ended:
                    _wait(pipeline, run, deadline, report)


def _wait(pipeline: Pipeline, run: PipelineRun, deadline: float, report: Report) -> PipelineRun:
    while not run.has_ended:
        if time.monotonic() > deadline:
            raise MemstreamError("the time to wait is over; what is left goes on being distilled")
        asked = time.monotonic()
        lanes = [lane for state in BUSY for lane in pipeline.lanes(state=state, page_size=100)]
        report(sum(lane.behind for lane in lanes), why(lane.reason for lane in lanes))
        time.sleep(max(POLL_S, time.monotonic() - asked))  # a look at many lanes must not become the load
        run = pipeline.get_run(run.id)
    return run
