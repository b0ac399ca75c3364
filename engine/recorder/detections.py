"""Detections: nb_beacon, the trace, the figures of venues and beacons."""

from collections.abc import Mapping
from typing import Literal

from prometheus_client import Counter

from engine.kafka.detections import DecodedDetection, decode_batch
from engine.kafka.partition_worker import Records
from engine.recorder.aggregate import (
    counted_detections,
    detection_rows,
    news_of_detections,
    statistics_of_detections,
)
from engine.recorder.ledger import Entry
from engine.recorder.local_days import DayRule
from engine.recorder.presence import rows_with_news
from engine.recorder.rows import DetectionRow, PresenceKey

Trace = Literal["all", "changes", "none"]


class DetectionReader:
    """Reads what the trigger reads, in the same way: it makes the dead letters of this topic.

    `rule` says for which day a detection counts.
    """

    def __init__(
        self,
        *,
        path_loss_exponent: float,
        trace: Trace,
        skipped: Counter,
        rule: DayRule,
    ) -> None:
        self._path_loss_exponent = path_loss_exponent
        self._trace = trace
        self._skipped = skipped.labels("malformed_detection")
        self._rule = rule

    async def read(self, records: Records) -> "DetectionBatch":
        """Decode the records."""
        decoded = decode_batch(records, self._path_loss_exponent)
        if decoded.dead_letters:
            self._skipped.inc(len(decoded.dead_letters))
        return DetectionBatch(decoded.detections, self._trace, self._rule)


class DetectionBatch:
    """Decoded detections; which of them count is decided in the transaction that counts them."""

    def __init__(self, heard: list[DecodedDetection], trace: Trace, rule: DayRule) -> None:
        self._heard = heard
        self._trace = trace
        self._rule = rule

    async def write(self, entry: Entry) -> Mapping[str, int]:
        """Write all of it; the rows written, by table."""
        places = await entry.places({detection.key for detection in self._heard})
        counted = counted_detections(self._heard, places)
        if not counted:
            return {}
        now = await entry.now()
        devices = await entry.add_devices(news_of_detections(counted), now)
        rule, epoch = self._rule, now.timestamp()
        rows = [] if self._trace == "none" else detection_rows(counted, devices, rule, epoch)
        if self._trace == "changes":
            rows = await _rows_with_news(entry, rows)
        await entry.add_detections(rows)
        statistics = statistics_of_detections(counted, devices, rule, epoch)
        await entry.add_statistics(statistics.figures, statistics.devices)
        return {"device": len(devices), "detection_trace": len(rows)}


async def _rows_with_news(entry: Entry, rows: list[DetectionRow]) -> list[DetectionRow]:
    states = await entry.presences({PresenceKey(row.device_id, row.beacon_id) for row in rows})
    kept = rows_with_news(rows, states)
    changed = {PresenceKey(row.device_id, row.beacon_id) for row in kept}
    await entry.set_presences({key: states[key] for key in changed})
    return kept
