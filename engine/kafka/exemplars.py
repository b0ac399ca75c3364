"""Leads from a slow notification in the latency histogram to its record.

An exemplar (OpenMetrics) names one notification of a bucket. A slow notification is also logged,
with the record that caused it. Both are rare, so neither costs much.
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
    """Add a notification as an exemplar of its bucket, and log it if it was slow.

    `record` caused it: a detection, or a call of a customer's service.
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
