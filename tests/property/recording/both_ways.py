"""Batches of records, recorded in columns and one object after the other, and compared."""

import asyncio
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import prometheus_client

from engine.kafka.detection_decoder import OwnFormatDecoder
from engine.kafka.detections import BeaconKey, decode_detections
from engine.kafka.partition_worker import Records
from engine.recorder.aggregate import NewRows
from engine.recorder.detections import CountedDetections
from engine.recorder.local_days import DayRule
from engine.recorder.rows import (
    ActiveBeacon,
    DetectionRow,
    DeviceChanges,
    DeviceColumns,
    DeviceIdentity,
    StoredDevice,
    ToldDevice,
)
from tests.property.written_detections import MS
from tests.servers.compiled import compiled
from tests.unit.engine.records import record
from tests.unit.rules.records import UUID

EXPONENT = 2.2
RULE = DayRule(max_age=300.0, retention=3 * 86_400.0)
NOW = MS / 1000 + 1800
PLACES = {
    BeaconKey(UUID, 1, 1): ActiveBeacon(11, 101, 1, "America/Los_Angeles"),
    BeaconKey(UUID, 1, 2): ActiveBeacon(12, 101, 1, "America/Los_Angeles"),
    BeaconKey(UUID, 1, 3): ActiveBeacon(13, 102, 1, None),
    BeaconKey(UUID, 1, 4): ActiveBeacon(14, 103, 2, "Pacific/Kiritimati"),
    BeaconKey(UUID, 1, 5): ActiveBeacon(15, 104, 2, "Mars/Olympus"),
    BeaconKey(UUID, 1, 6): ActiveBeacon(16, 105, 3, "Europe/Paris"),
}
_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)


class Written(NamedTuple):
    """The value of a record and its timestamp, in milliseconds."""

    value: bytes | None
    arrived: int = MS


class Devices(NamedTuple):
    """What SQL says of devices: by their numbers in the order of (company, udid)."""

    tests: Collection[int] = ()
    new: Collection[int] = ()

    def told(self, identities: Collection[DeviceIdentity]) -> list[ToldDevice]:
        """The rows of devices, in another order than they were asked for."""
        numbered = zip(sorted(identities), count(1))
        return [
            ToldDevice(*identity, 1000 + number, number in self.tests, number in self.new)
            for identity, number in numbered
        ][::-1]


def records_of(batch: Sequence[Written]) -> Records:
    return [
        replace(record(each.value, offset=offset), timestamp=each.arrived)
        for offset, each in enumerate(batch)
    ]


@cache
def scanner() -> Any:
    """One for all batches, as a process has it."""
    return compiled("engine.recorder.detection_batch").DetectionScanner(EXPONENT)


def left_to_the_decoder(*values: bytes | None) -> list[bytes | None]:
    """The values that the compiled scanner does not read."""
    _, others = scanner().read(records_of([Written(value) for value in values]))
    return [other.value for other in others]


def both_agree(
    batch: Sequence[Written],
    devices: Devices = Devices(),  # noqa: B008
    *,
    now: float = NOW,
    places: Mapping[BeaconKey, ActiveBeacon] = PLACES,
    rule: DayRule = RULE,
) -> NewRows:
    """Record a batch in both ways, assert that they agree, and return the rows."""
    decoded = decode_detections(records_of(batch), EXPONENT)
    plain = CountedDetections(decoded.messages, places, rule=rule, trace="all")
    columns = _counted_in_columns(records_of(batch), places, rule, len(decoded.dead_letters))
    expected = plain.device_updates()
    assert changes_in(columns.device_updates()) == expected
    told = devices.told(expected)
    stored = {DeviceIdentity(*t[:2]): StoredDevice(t.id, t.test) for t in told}
    rows = columns.rows(told, now)
    _compare(rows, plain.rows(stored, now), {t.id for t in told if t.new})
    return plain.rows(stored, now)


def _counted_in_columns(
    records: Records, places: Mapping[BeaconKey, ActiveBeacon], rule: DayRule, dead: int
) -> Any:
    shared = scanner()
    from engine.recorder.detection_columns import ColumnDetectionReader, CountedColumns

    skipped = prometheus_client.Counter("skipped", "", ["reason"], registry=None)
    reader = ColumnDetectionReader(
        scanner=shared,
        decoder=OwnFormatDecoder(path_loss_exponent=EXPONENT),
        trace="all",
        skipped=skipped,
        rule=rule,
    )
    batch = asyncio.run(reader.read(records))
    assert skipped.labels("malformed_detection")._value.get() == dead
    CountedColumns(batch, {}, rule=rule, trace="all").device_updates()  # a batch is counted again
    return CountedColumns(batch, places, rule=rule, trace="all")


def changes_in(columns: DeviceColumns | Mapping[Any, Any]) -> dict[DeviceIdentity, DeviceChanges]:
    """The updates that the columns mean."""
    if not isinstance(columns, DeviceColumns):
        assert not columns
        return {}
    found = [
        (DeviceIdentity(company, udid), DeviceChanges(*changes))
        for company, udid, *changes in zip(*columns, strict=True)
    ]
    assert [key for key, _ in found] == sorted({key for key, _ in found})
    return dict(found)


def _compare(found: NewRows, expected: NewRows, new: set[int]) -> None:
    assert list(found.detections) == expected.detections
    assert len(found.detections) == len(expected.detections)
    copied: Any = found.detections
    for part in (slice(1, 3), slice(None, None, -1), slice(-1, None)):
        assert copied[part] == expected.detections[part]
    assert copied.as_copy() == copy_of(expected.detections)
    assert found.recent == expected.recent
    assert found.statistics is not None
    assert expected.statistics is not None
    assert found.statistics.figures == expected.statistics.figures
    counted_new = {key: set(ids) for key, ids in found.statistics.new_devices.items()}
    assert {
        key: ids | counted_new.get(key, set()) for key, ids in found.statistics.devices.items()
    } == expected.statistics.devices
    for key, ids in found.statistics.devices.items():
        assert not ids & new
        assert counted_new.get(key, set()) <= new
    for ids_ in found.statistics.new_devices.values():
        assert len(ids_) == len(set(ids_))


def copy_of(rows: Sequence[DetectionRow]) -> bytes:
    """The rows in the binary format of PostgreSQL's documentation."""
    written = [b"PGCOPY\n\xff\r\n\0", struct.pack(">ii", 0, 0)]
    for row in rows:
        since = row.create_on - _EPOCH_2000
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        numbers = [struct.pack(">q", each) for each in row[:3]]
        ip = None if row.ip is None else row.ip.encode()
        written.append(struct.pack(">h", 6))
        for field in (*numbers, row.status.encode(), struct.pack(">q", micros), ip):
            written.append(struct.pack(">i", -1 if field is None else len(field)))
            written.append(field or b"")
    return b"".join([*written, struct.pack(">h", -1)])
