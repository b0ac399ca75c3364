"""Every metric of the product, with its meaning. Built once per process and passed on."""

import time
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from engine.process.batch_histogram import BatchHistogram
from engine.process.failures import (
    database_may_recover,
    kafka_may_recover,
    redis_may_recover,
    registry_may_recover,
)
from engine.process.server_errors import ServerErrors

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_STEP = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZE = (1, 10, 50, 100, 500, 1000, 2000, 5000, 10_000)

_WORK = {
    "proximity_detections_total": "detections",
    "proximity_notifications_total": "notifications",
    "proximity_connector_calls_total": "connector_calls",
    "proximity_recorder_rows_total": "rows",
    "proximity_dead_letters_total": "dead_letters",
}


def engine_version() -> str:
    """The installed version of the product."""
    try:
        return version("proximity-engine")
    except PackageNotFoundError:
        return "0"


class Metrics:
    """The registry and its metrics. Labels have closed sets of values: never a udid or a url."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series a counter
        self.registry = registry or CollectorRegistry()
        self._stream()
        self._state()
        self._recorder()
        self._connectors()
        ProcessCollector(registry=self.registry)
        info = self._gauge("proximity_build_info", "1, by version", "version")
        info.labels(engine_version()).set(1)

    def _stream(self) -> None:
        self.detections = self._counter(
            "proximity_detections_total",
            "Detections decided, by the furthest check that they reached",
            "reason",
        )
        self.decisions = self._counter(
            "proximity_decisions_total",
            "Decisions: one per campaign, or one for a detection that reached no campaign",
            "reason",
        )
        self.notifications = self._counter(
            "proximity_notifications_total", "Notifications published, by format", "format"
        )
        self.connector_handovers = self._counter(
            "proximity_connector_handovers_total", "Calls published for the connector role"
        )
        self.latency = BatchHistogram(
            "proximity_detection_to_notification_seconds",
            "Time from detected_at to the broker's acknowledgement of the notification",
            registry=self.registry,
            buckets=_LATENCY,
        )
        self.batch_seconds = self._histogram(
            "proximity_batch_seconds",
            "Time of one step of one batch",
            "role",
            "step",
            buckets=_STEP,
        )
        self.batch_size = self._histogram(
            "proximity_batch_size", "Records in one batch", buckets=_SIZE
        )
        self.lag = self._gauge(
            "proximity_consumer_lag_records",
            "Records behind the end of the partition",
            "role",
            "topic",
            "partition",
        )
        self.kafka_errors = self._server_errors(
            "kafka",
            "Requests to Kafka that failed and are retried: metadata, commits, publishing",
            kafka_may_recover,
        )
        self.registry_errors = self._server_errors(
            "registry",
            "Requests to the schema registry that failed and are retried",
            registry_may_recover,
        )
        self.records_skipped = self._counter(
            "proximity_records_skipped_total",
            "Records that were never read: retention (they were deleted before)",
            "role",
            "cause",
        )
        self.dead_letters = self._counter(
            "proximity_dead_letters_total", "Records published to dead-letters", "topic", "reason"
        )

    def _recorder(self) -> None:
        self.recorder_rows = self._counter(
            "proximity_recorder_rows_total", "Rows that the recorder has written, by table", "table"
        )
        self.recorder_transactions = self._histogram(
            "proximity_recorder_transaction_seconds",
            "Time of one transaction of the recorder, commit included",
            buckets=_STEP,
        )
        self.recorder_skipped = self._counter(
            "proximity_recorder_skipped_total",
            "Records that are not counted: malformed detections, repeated notifications",
            "reason",
        )
        self.sql_errors = self._server_errors(
            "sql", "Calls to SQL that failed and are retried", database_may_recover
        )

    def _connectors(self) -> None:
        self.connector_calls = self._counter(
            "proximity_connector_calls_total",
            "Calls to customers' services: published, declined, retried (a failed try that is "
            "retried), or the reason of the dead letter",
            "outcome",
        )
        self.connector_call_seconds = self._histogram(
            "proximity_connector_call_seconds",
            "Time of one try, from the name resolution to the end of the reply",
            buckets=_LATENCY,
        )
        self.connector_breakers = self._gauge(
            "proximity_connector_breakers",
            "Companies that were called lately, by the state of their breaker",
            "state",
        )

    def _state(self) -> None:
        self.index_lookups = self._counter(
            "proximity_index_lookups_total",
            "Beacons looked up: in the process cache, then in Redis",
            "layer",
            "outcome",
        )
        self.claims = self._counter(
            "proximity_claims_total",
            "Claims by outcome: granted, denied by Redis, held (denied from memory)",
            "outcome",
        )
        self.redis_errors = self._server_errors(
            "redis", "Calls to Redis that failed and are retried", redis_may_recover
        )
        self.figures_dropped = self._counter(
            "proximity_figures_dropped_total",
            "Sums of decisions that are not in a company's figures: Redis was down, or too many",
        )
        self.redis_memory = self._gauge(
            "proximity_redis_memory_ratio",
            "Memory that Redis uses, as a share of its maxmemory; 0 without a maxmemory",
        )
        self.redis_evicts = self._gauge(
            "proximity_redis_evicts",
            "1 if Redis may evict keys: its maxmemory-policy is not noeviction",
        )
        self.index_lag = self._gauge(
            "proximity_index_generation_lag",
            "Writes to the index that are in SQL and not yet in Redis, in generations",
        )
        self.clock_skew = self._gauge(
            "proximity_clock_skew_seconds",
            "Seconds by which this process's clock is ahead of the server's",
            "server",
        )

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _server_errors(
        self, server: str, meaning: str, may_recover: Callable[[Exception], bool]
    ) -> ServerErrors:
        counter = self._counter(f"proximity_{server}_errors_total", meaning)
        return ServerErrors(server, counter, may_recover=may_recover)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)

    def _histogram(
        self, name: str, meaning: str, *labels: str, buckets: Sequence[float]
    ) -> Histogram:
        return Histogram(name, meaning, labels, registry=self.registry, buckets=buckets)


class StepTimer:
    """Times the steps of a role's batches: `with step("decode"): ...`.

    A step that raises is not counted.
    """

    def __init__(
        self, metrics: Metrics, role: str, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._histogram = metrics.batch_seconds
        self._role = role
        self._clock = clock
        self._of_step: dict[str, Histogram] = {}

    def __call__(self, step: str) -> "_TimedStep":
        of_step = self._of_step.get(step)
        if of_step is None:
            of_step = self._of_step[step] = self._histogram.labels(self._role, step)
        return _TimedStep(of_step, self._clock)


class _TimedStep:
    """Small batches pass many steps: a generator and a look-up of labels would cost them more than
    the decisions."""

    __slots__ = ("_begin", "_clock", "_histogram")

    def __init__(self, histogram: Histogram, clock: Callable[[], float]) -> None:
        self._histogram = histogram
        self._clock = clock

    def __enter__(self) -> None:
        self._begin = self._clock()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._histogram.observe(self._clock() - self._begin)


def finished_work(registry: CollectorRegistry) -> dict[str, int]:
    """Counts of what the process has done, for its last log line; zeros are left out."""
    counts: Tally[str] = Tally()
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in _WORK:
                counts[_WORK[sample.name]] += round(sample.value)
    return {name: counts[name] for name in _WORK.values() if counts[name]}
