"""From a slow bucket of the latency to the record behind it.

An exemplar (OpenMetrics) names one notification of a bucket; one that was slow is a line in the
log, too, with the record that it came from. Both are rare, so that neither costs anything.
"""

import structlog
from aiokafka import ConsumerRecord

from engine.kafka.trace_context import trace_headers, trace_id_of
from engine.process.batch_histogram import BatchHistogram

log = structlog.get_logger(__name__)

SLOW_SECONDS = 5.0


def note_exemplar(
    histogram: BatchHistogram,
    *,
    seconds: float,
    notification_id: str,
    record: ConsumerRecord[bytes, bytes],
    company: int,
    campaign: int,
    now: float,
) -> None:
    """Put a notification beside its bucket, and into the log if it was slow.

    `record` is what it was made of: a detection, or the call of a customer's service.
    """
    labels = {"notification": notification_id}
    if record.headers and (trace := trace_id_of(trace_headers(record.headers))):
        labels["trace_id"] = trace
    histogram.put_exemplar(seconds, labels, now)
    if seconds >= SLOW_SECONDS:
        log.warning(
            "a notification was slow",
            **labels,
            seconds=round(seconds, 3),
            company=company,
            campaign=campaign,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )
