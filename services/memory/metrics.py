"""What the memory service counts beside the chassis: the promise itself."""

from prometheus_client import CollectorRegistry, Histogram

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.freshness = Histogram(
            "memstream_freshness_seconds",
            "From the oldest append of a batch to its commit, when it is searchable",
            buckets=SECONDS,
            registry=registry,
        )
