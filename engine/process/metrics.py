"""Every metric of the product, with its meaning. Built once per process and passed on."""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from engine import engine_version
from engine.process.failures import (
    ServerErrors,
    database_may_recover,
    kafka_may_recover,
    redis_may_recover,
    registry_may_recover,
)

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_STEP = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZE = (1, 10, 50, 100, 500, 1000, 2000, 5000, 10_000)


class BatchHistogram(Histogram):
    """A histogram whose values come in batches.

    The library's `observe` takes a lock and searches the buckets, too slow for every notification.
    """

    def observe_counts(self, counts: Mapping[float, int]) -> None:
        """Observe each value as often as its count says."""
        by_bucket: Tally[int] = Tally()
        for value, count in counts.items():
            by_bucket[bisect_left(self._upper_bounds, value)] += count
        for bucket, count in by_bucket.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(value * count for value, count in counts.items()))


class Metrics:
    """The registry and its metrics. Labels have closed sets of values: never a udid or a url."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series a counter
        self.registry = registry or CollectorRegistry()
        options: dict[str, Any] = {"namespace": "proximity", "registry": self.registry}
        counter: Callable[..., Counter] = partial(Counter, **options)
        gauge: Callable[..., Gauge] = partial(Gauge, **options)
        histogram: Callable[..., Histogram] = partial(Histogram, **options)

        def server_errors(server: str, may_recover: Callable[[Exception], bool]) -> ServerErrors:
            failed = counter(f"{server}_errors_total", "Failed calls that are retried")
            return ServerErrors(server, failed, may_recover=may_recover)

        # The stream.
        self.detections = counter("detections_total", "By the furthest check reached", ["reason"])
        self.decisions = counter("decisions_total", "One per campaign, else one", ["reason"])
        self.notifications = counter("notifications_total", "Notifications published", ["format"])
        self.connector_handovers = counter(
            "connector_handovers_total", "Calls published for the connector role"
        )
        self.latency = BatchHistogram(
            "detection_to_notification_seconds",
            "From detected_at to the broker's acknowledgement of the notification",
            buckets=_LATENCY,
            **options,
        )
        self.batch_seconds = histogram(
            "batch_seconds", "Time of one step of one batch", ["role", "step"], buckets=_STEP
        )
        self.batch_size = histogram("batch_size", "Records in one batch", buckets=_SIZE)
        self.lag = gauge(
            "consumer_lag_records", "Records behind the end", ["role", "topic", "partition"]
        )
        self.records_skipped = counter(
            "records_skipped_total",
            "Records deleted before they were read, and exits of geofences",
            ["role", "cause"],
        )
        self.dead_letters = counter(
            "dead_letters_total", "Records published to dead-letters", ["topic", "reason"]
        )
        # The servers: failed calls that are retried, unless their errors are permanent.
        self.kafka_errors = server_errors("kafka", kafka_may_recover)
        self.registry_errors = server_errors("registry", registry_may_recover)
        self.redis_errors = server_errors("redis", redis_may_recover)
        self.sql_errors = server_errors("sql", database_may_recover)
        self.redis_memory = gauge(
            "redis_memory_ratio", "Used memory as a share of maxmemory; 0 without a maxmemory"
        )
        self.redis_evicts = gauge(
            "redis_evicts", "1 if Redis may evict keys: maxmemory-policy is not noeviction"
        )
        self.clock_skew = gauge(
            "clock_skew_seconds", "By how much this clock is ahead of the server's", ["server"]
        )
        # The index and the claims.
        self.index_lookups = counter(
            "index_lookups_total", "Beacons looked up, by cache", ["layer", "outcome"]
        )
        self.index_lag = gauge(
            "index_generation_lag", "Writes of SQL that are not in Redis, in generations"
        )
        self.claims = counter(
            "claims_total", "Granted, denied by Redis, held (denied from memory)", ["outcome"]
        )
        self.visits = counter(
            "visits_total", "Events of visits, and detections that came too late", ["kind", "type"]
        )
        self.visits_open = gauge("visits_open", "Visits that have not ended")
        self.figures_dropped = counter(
            "figures_dropped_total", "Sums of decisions lost: Redis was down, or too many"
        )
        # The recorder.
        self.recorder_rows = counter("recorder_rows_total", "Rows written", ["table"])
        self.recorder_transactions = histogram(
            "recorder_transaction_seconds", "Time of a transaction, with its commit", buckets=_STEP
        )
        self.recorder_skipped = counter(
            "recorder_skipped_total", "Malformed detections, repeated messages", ["reason"]
        )
        # The connector role.
        self.connector_calls = counter(
            "connector_calls_total",
            "published, declined, retried (a failed try), or the reason of the dead letter",
            ["outcome"],
        )
        self.connector_call_seconds = histogram(
            "connector_call_seconds", "From resolving the name to the reply's end", buckets=_LATENCY
        )
        self.connector_breakers = gauge(
            "connector_breakers",
            "Companies called lately, by the state of their breaker",
            ["state"],
        )
        ProcessCollector(registry=self.registry)
        gauge("build_info", "1, by version", ["version"]).labels(engine_version()).set(1)


class StepTimer:
    """Times the steps of a role's batches: `with step("decode"): ...`."""

    def __init__(self, metrics: Metrics, role: str) -> None:
        self._histogram = cache(partial(metrics.batch_seconds.labels, role))

    def __call__(self, step: str) -> AbstractContextManager[object]:
        return self._histogram(step).time()
