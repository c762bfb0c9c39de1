"""What the distiller counts beside the chassis: the promise, and whatever endangers it."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from libs.chassis.breaker import Breaker
from libs.contracts.events import AppliedChange
from services.distiller.store.usage import Spent


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.distillations = Counter(
            "memstream_distillations_total", "Distillations by outcome", ("outcome",), registry=registry
        )
        self.oldest_undistilled = Gauge(
            "memstream_oldest_undistilled_seconds",
            "Age of the oldest append that waits in a continuous pipeline",
            registry=registry,
        )
        self.model_calls = Counter(
            "memstream_model_calls_total", "Calls of a model by outcome", ("model", "outcome"), registry=registry
        )
        self.model_tokens = Counter(
            "memstream_model_tokens_total", "Tokens by model and kind", ("model", "kind"), registry=registry
        )
        self._breaker_open = Gauge(
            "memstream_model_breaker_open", "1 while a model's endpoint is failing", ("model",), registry=registry
        )
        self.sweep_finds = Counter(
            "memstream_sweep_finds_total",
            "Sessions that only the sweep found: 0 in a healthy system",
            registry=registry,
        )
        self.rewound = Counter(
            "memstream_sessions_rewound_total",
            "Sessions distilled anew because the session database was restored to an older state",
            registry=registry,
        )
        self.reemitted = Counter(
            "memstream_batches_reemitted_total", "Batches that memory had not answered in time", registry=registry
        )
        self.outcomes = Counter(
            "memstream_changes_total", "Changes by what memory made of them", ("outcome",), registry=registry
        )

    def watch(self, model: str, breaker: Breaker) -> None:
        """Tells of a model's endpoint what its breaker knows, whoever asked."""
        self._breaker_open.labels(model).set_function(lambda: breaker.is_failing)

    def count_outcomes(self, outcomes: Sequence[AppliedChange]) -> None:
        """What memory made of a batch: once, however often it says so."""
        for applied in outcomes:
            self.outcomes.labels(applied.outcome).inc()

    def count(self, spent: Spent) -> None:
        """A call of a model, with its tokens."""
        self.model_calls.labels(spent.model, spent.outcome).inc()
        self.model_tokens.labels(spent.model, "prompt").inc(spent.prompt_tokens)
        self.model_tokens.labels(spent.model, "completion").inc(spent.completion_tokens)
