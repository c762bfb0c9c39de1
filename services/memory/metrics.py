"""What the memory service counts beside the chassis: the promise itself, and what vectors cost."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.freshness = Histogram(
            "memstream_freshness_seconds",
            "From the oldest append of a batch to its commit, when it is searchable",
            buckets=SECONDS,
            registry=registry,
        )
        self.pending_vectors = Gauge(
            "memstream_pending_vectors",
            "Entries that wait for a vector of their store's model",
            ("model",),
            registry=registry,
        )
        self.embedding_calls = Counter(
            "memstream_embedding_calls_total",
            "Calls of an embeddings endpoint",
            ("model", "outcome"),
            registry=registry,
        )
        self.embedding_tokens = Counter(
            "memstream_embedding_tokens_total", "Tokens embedded", ("model",), registry=registry
        )
        self.searches_without_vectors = Counter(
            "memstream_searches_without_vectors_total",
            "Searches that went by words alone because the query's vector did not come",
            ("model", "reason"),
            registry=registry,
        )
