"""Reads and counts detections: nb_beacon, the trace, the figures of venues and beacons."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Literal, NamedTuple

import prometheus_client

from engine.kafka.detection_decoder import DetectionDecoder
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.partition_worker import Records
from engine.recorder.aggregate import (
    ChangesByDevice,
    NewRows,
    Statistics,
    StoredDevices,
    arrived_at,
    stored_address,
    stored_instant,
    update_device,
)
from engine.recorder.ledger import LedgerTransaction
from engine.recorder.local_days import DayRule
from engine.recorder.rows import (
    BEACON,
    STATUS,
    VENUE,
    ActiveBeacon,
    DetectionRow,
    DeviceIdentity,
    StatisticKey,
)
from engine.redis.recent_detections import MINUTES, BeaconMinute

Trace = Literal["all", "changes", "none"]


class DetectionReader:
    """Decodes detections as the trigger does; the trigger makes the dead letters.

    `rule` says for which day a detection counts, `trace` which detections leave a trace row.
    """

    def __init__(
        self,
        *,
        decoder: DetectionDecoder,
        trace: Trace,
        skipped: prometheus_client.Counter,
        rule: DayRule,
    ) -> None:
        self._decoder = decoder
        self._trace: Trace = trace
        self._skipped = skipped.labels("malformed_detection")
        self._rule = rule

    async def read(self, records: Records) -> list[DecodedDetection]:
        """Decode the records."""
        batch = await self._decoder.decode(records)
        if batch.dead_letters:
            self._skipped.inc(len(batch.dead_letters))
        return batch.messages

    async def count(
        self, transaction: LedgerTransaction, batch: list[DecodedDetection]
    ) -> "CountedDetections":
        """The detections of active beacons at active venues."""
        beacons = await transaction.active_beacons({each.key for each in batch})
        return CountedDetections(batch, beacons, rule=self._rule, trace=self._trace)


class _CountedDetection(NamedTuple):
    detection: DecodedDetection
    beacon: ActiveBeacon
    device: DeviceIdentity


class CountedDetections:
    """The detections of a batch at `beacons`, which are active. Pure."""

    def __init__(
        self,
        detections: Iterable[DecodedDetection],
        beacons: Mapping[BeaconKey, ActiveBeacon],
        *,
        rule: DayRule,
        trace: Trace,
    ) -> None:
        self._rule = rule
        self._trace = trace
        self._detections = [
            _CountedDetection(
                each, beacon, DeviceIdentity(beacon.company_id, each.message.device.udid)
            )
            for each in detections
            if (beacon := beacons.get(each.key)) is not None
        ]

    def device_updates(self) -> ChangesByDevice:
        """nb_beacon and the last known facts of each device."""
        updates: ChangesByDevice = {}
        for detection, _, device in self._detections:
            update_device(updates, device, detection.message.device).nb_beacon += 1
        return updates

    def rows(self, devices: StoredDevices, now: float) -> NewRows:
        """The trace rows, and the figures of venues and beacons. `now` is SQL's clock."""
        return NewRows(
            detections=() if self._trace == "none" else self._trace_rows(devices, now),
            statistics=self._statistics(devices, now),
            only_changes=self._trace == "changes",
            recent=self._recent(devices, now),
        )

    def _recent(self, devices: StoredDevices, now: float) -> dict[BeaconMinute, int]:
        """The detections of the last minutes by beacon, test devices left out."""
        end = now // 60 * 60 + 60
        begin = end - 60 * MINUTES
        tests = {device for device, stored in devices.items() if stored.test}
        counts = Counter(
            (beacon.venue_id, beacon.beacon_id, detection.detected_at // 60)
            for detection, beacon, device in self._detections
            if begin <= detection.detected_at < end and device not in tests
        )
        return {
            BeaconMinute(venue, beacon, int(minute)): count
            for (venue, beacon, minute), count in counts.items()
        }

    def _trace_rows(self, devices: StoredDevices, now: float) -> list[DetectionRow]:
        return [
            DetectionRow(
                devices[device].id,
                beacon.venue_id,
                beacon.beacon_id,
                STATUS[detection.zone],
                stored_instant(detection.detected_at),
                stored_address(detection.message.ip),
            )
            for detection, beacon, device in self._detections
            if self._rule.leaves_trace(detection.detected_at, arrived_at(detection.record), now)
        ]

    def _statistics(self, devices: StoredDevices, now: float) -> Statistics:
        day_of = self._rule.day_of
        visits: defaultdict[tuple[date | None, ActiveBeacon], list[int]] = defaultdict(list)
        for detection, beacon, device in self._detections:
            id_, is_test = devices[device]
            if not is_test:
                arrival = arrived_at(detection.record)
                day = day_of(detection.detected_at, arrival, now, beacon.time_zone)
                visits[day, beacon].append(id_)
        statistics = Statistics()
        for (day, beacon), ids in visits.items():
            if day is None:
                continue
            for kind, ref in ((VENUE, beacon.venue_id), (BEACON, beacon.beacon_id)):
                key = StatisticKey(day, kind, ref)
                statistics.count(key, beacon.venue_id, ids).detections += len(ids)
        return statistics
