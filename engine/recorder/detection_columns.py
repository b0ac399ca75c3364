"""Reads and counts detections in columns, by compiled modules (docs/decisions/0127).

The outcome is that of detections.py, but no object is made of a detection that is written as usual.
"""

from collections.abc import Mapping

import prometheus_client

from engine.kafka.detection_decoder import OwnFormatDecoder
from engine.kafka.detections import BeaconKey
from engine.kafka.partition_worker import Records
from engine.recorder.aggregate import ChangesByDevice, NewRows
from engine.recorder.detection_batch import DetectionBatch, DetectionScanner
from engine.recorder.detection_counts import Counted
from engine.recorder.detection_figures import figures_of
from engine.recorder.detections import Trace
from engine.recorder.ledger import LedgerTransaction
from engine.recorder.local_days import DayRule
from engine.recorder.rows import ActiveBeacon, DeviceColumns, ToldDevice
from engine.recorder.trace_rows import TraceRows


class ColumnDetectionReader:
    """Does the work of DetectionReader, for topics in this project's own format."""

    def __init__(
        self,
        *,
        scanner: DetectionScanner,
        decoder: OwnFormatDecoder,
        trace: Trace,
        skipped: prometheus_client.Counter,
        rule: DayRule,
    ) -> None:
        self._scanner = scanner
        self._decoder = decoder
        self._trace: Trace = trace
        self._skipped = skipped.labels("malformed_detection")
        self._rule = rule

    async def read(self, records: Records) -> DetectionBatch:
        """Read the records; the decoder reads those that are not written as usual."""
        batch, others = self._scanner.read(records)
        if others:
            decoded = await self._decoder.decode(others, records)
            batch.fill(decoded.messages, decoded.dead_positions)
            if decoded.dead_letters:
                self._skipped.inc(len(decoded.dead_letters))
        return batch

    async def count(
        self, transaction: LedgerTransaction, batch: DetectionBatch
    ) -> "CountedColumns":
        """The detections of active beacons at active venues."""
        beacons = await transaction.active_beacons(set(batch.keys))
        return CountedColumns(batch, beacons, rule=self._rule, trace=self._trace)


class CountedColumns:
    """The detections of a batch at `beacons`, which are active. Pure."""

    def __init__(
        self,
        batch: DetectionBatch,
        beacons: Mapping[BeaconKey, ActiveBeacon],
        *,
        rule: DayRule,
        trace: Trace,
    ) -> None:
        self._counted = Counted(batch, beacons, rule)
        self._trace = trace

    def device_updates(self) -> DeviceColumns | ChangesByDevice:
        """nb_beacon and the last known facts of each device."""
        return self._counted.device_updates() if self._counted.counted else {}

    def rows(self, devices: list[ToldDevice], now: float) -> NewRows:
        """The trace rows, and the figures of venues and beacons. `now` is SQL's clock."""
        self._counted.note_stored(devices)
        statistics, recent = figures_of(self._counted, now)
        return NewRows(
            detections=() if self._trace == "none" else TraceRows(self._counted, now),
            statistics=statistics,
            only_changes=self._trace == "changes",
            recent=recent,
        )
