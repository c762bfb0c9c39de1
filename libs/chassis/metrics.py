"""Every metric that the chassis counts. Labels come from small fixed sets, never ids or subjects."""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

METHODS = {"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"}
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """One registry per process, shared by the services in it; the label `service` tells them apart."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        r = self.registry
        self.requests = Counter(
            "memstream_http_requests_total", "HTTP answers", ("service", "method", "status"), registry=r
        )
        self.request_seconds = Histogram(
            "memstream_http_request_seconds",
            "HTTP time to the end of the answer",
            ("service", "method"),
            buckets=SECONDS,
            registry=r,
        )
        self.deliveries = Counter(
            "memstream_deliveries_total", "Messages by what became of them", ("consumer", "outcome"), registry=r
        )
        self.publish_seconds = Histogram(
            "memstream_outbox_publish_seconds",
            "From a commit to the broker's acknowledgement",
            ("service",),
            buckets=SECONDS,
            registry=r,
        )
        self.outbox_pending = Gauge(
            "memstream_outbox_pending", "Outbox rows older than a second", ("service",), registry=r
        )
        self.outbox_age = Gauge(
            "memstream_outbox_age_seconds", "Age of the oldest outbox row", ("service",), registry=r
        )
        self.parked = Gauge("memstream_parked_messages", "Messages parked", ("service",), registry=r)
        self.bus_connected = Gauge("memstream_bus_connected", "1 while NATS answers", ("service",), registry=r)
        self.topology_repairs = Counter(
            "memstream_topology_repairs_total", "Times that missing consumers were made again", ("service",), registry=r
        )
        self.job_failures = Counter(
            "memstream_job_failures_total", "Background passes that failed", ("job",), registry=r
        )

    def http(self, service: str) -> Callable[[str, int, float], None]:
        """Counts one answer of a service: method, status, seconds. Each pair of labels is looked up once."""

        @cache
        def count(method: str, status: int) -> Callable[[], None]:
            return self.requests.labels(service, method, str(status)).inc

        @cache
        def observe(method: str) -> Callable[[float], None]:
            return self.request_seconds.labels(service, method).observe

        def answered(method: str, status: int, seconds: float) -> None:
            if method not in METHODS:
                method = "other"
            count(method, status)()
            observe(method)(seconds)

        return answered
