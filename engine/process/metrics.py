"""Every metric of the product, with its meaning. Built once per process and passed on."""

from collections import Counter as Tally
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from engine.process.failures import (
    database_may_recover,
    kafka_may_recover,
    redis_may_recover,
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
    """The registry and its metrics. Labels are closed sets: never a udid, never a url."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series a counter
        self.registry = registry or CollectorRegistry()
        self._stream()
        self._state()
        self._recorder()
        self._connectors()
        ProcessCollector(registry=self.registry)
        info = Gauge("proximity_build_info", "1, by version", ["version"], registry=self.registry)
        info.labels(engine_version()).set(1)

    def _stream(self) -> None:
        registry = self.registry
        self.detections = Counter(
            "proximity_detections_total",
            "Detections decided, by the furthest check that they reached",
            ["reason"],
            registry=registry,
        )
        self.decisions = Counter(
            "proximity_decisions_total",
            "Decisions: one for a detection that reached no campaign, else one a campaign",
            ["reason"],
            registry=registry,
        )
        self.notifications = Counter(
            "proximity_notifications_total",
            "Notifications published, by format",
            ["format"],
            registry=registry,
        )
        self.connector_handovers = Counter(
            "proximity_connector_handovers_total",
            "Calls handed over to the connector role",
            registry=registry,
        )
        self.latency = Histogram(
            "proximity_detection_to_notification_seconds",
            "From detected_at to the broker's acknowledgement of the notification",
            buckets=_LATENCY,
            registry=registry,
        )
        self.batch_seconds = Histogram(
            "proximity_batch_seconds",
            "Time of one step of one batch",
            ["role", "step"],
            buckets=_STEP,
            registry=registry,
        )
        self.batch_size = Histogram(
            "proximity_batch_size", "Records in one batch", buckets=_SIZE, registry=registry
        )
        self.lag = Gauge(
            "proximity_consumer_lag_records",
            "Records behind the end of the partition",
            ["role", "topic", "partition"],
            registry=registry,
        )
        self.kafka_errors = ServerErrors(
            "kafka",
            Counter(
                "proximity_kafka_errors_total",
                "Requests to Kafka that failed and are tried again: questions, commits, publishing",
                registry=registry,
            ),
            may_recover=kafka_may_recover,
        )
        self.records_skipped = Counter(
            "proximity_records_skipped_total",
            "Records that were never read: retention (they were gone before), truncated (the "
            "partition lost its end)",
            ["role", "cause"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "proximity_dead_letters_total",
            "Records put into dead-letters",
            ["topic", "reason"],
            registry=registry,
        )

    def _recorder(self) -> None:
        registry = self.registry
        self.recorder_rows = Counter(
            "proximity_recorder_rows_total",
            "Rows that the recorder has written, by table",
            ["table"],
            registry=registry,
        )
        self.recorder_transactions = Histogram(
            "proximity_recorder_transaction_seconds",
            "Time of one transaction of the recorder, commit included",
            buckets=_STEP,
            registry=registry,
        )
        self.recorder_skipped = Counter(
            "proximity_recorder_skipped_total",
            "Records that count nothing: malformed (detections), or a notification's repeat",
            ["reason"],
            registry=registry,
        )
        self.sql_errors = ServerErrors(
            "sql",
            Counter(
                "proximity_sql_errors_total",
                "Calls to SQL that failed and are tried again",
                registry=registry,
            ),
            may_recover=database_may_recover,
        )

    def _connectors(self) -> None:
        registry = self.registry
        self.connector_calls = Counter(
            "proximity_connector_calls_total",
            "Calls to customers' services: published, declined, retried (a try that another one "
            "follows), or the reason of the dead letter",
            ["outcome"],
            registry=registry,
        )
        self.connector_call_seconds = Histogram(
            "proximity_connector_call_seconds",
            "Time of one try, from the look-up of the name to the end of the reply",
            buckets=_LATENCY,
            registry=registry,
        )
        self.connector_breakers = Gauge(
            "proximity_connector_breakers",
            "Companies called lately, by how their breaker stands",
            ["state"],
            registry=registry,
        )

    def _state(self) -> None:
        registry = self.registry
        self.index_lookups = Counter(
            "proximity_index_lookups_total",
            "Beacons looked up: in the process cache, then in Redis",
            ["layer", "outcome"],
            registry=registry,
        )
        self.claims = Counter(
            "proximity_claims_total",
            "Claims by outcome: granted, denied by Redis, held (denied from memory)",
            ["outcome"],
            registry=registry,
        )
        self.redis_errors = ServerErrors(
            "redis",
            Counter(
                "proximity_redis_errors_total",
                "Calls to Redis that failed and are tried again",
                registry=registry,
            ),
            may_recover=redis_may_recover,
        )
        self.redis_memory = Gauge(
            "proximity_redis_memory_ratio",
            "Memory that Redis uses, as a part of its maxmemory; 0 without one",
            registry=registry,
        )
        self.redis_evicts = Gauge(
            "proximity_redis_evicts",
            "1 when Redis may throw keys of ours away: maxmemory-policy is not noeviction",
            registry=registry,
        )
        self.index_lag = Gauge(
            "proximity_index_generation_lag",
            "Writes to the index, in generations, that SQL knows of and Redis lacks",
            registry=registry,
        )
        self.clock_skew = Gauge(
            "proximity_clock_skew_seconds",
            "How far this process's clock is ahead of the server's",
            ["server"],
            registry=registry,
        )


def finished_work(registry: CollectorRegistry) -> dict[str, int]:
    """What the process has done, for its last line of log; zeros are left out."""
    counts: Tally[str] = Tally()
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in _WORK:
                counts[_WORK[sample.name]] += round(sample.value)
    return {name: counts[name] for name in _WORK.values() if counts[name]}
