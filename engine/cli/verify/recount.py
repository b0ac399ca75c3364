"""Counts the topics. Pure, and written without the recorder's code, because it checks that code."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from engine.kafka.decoding import UNDECODABLE, Record
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Authentication, ReceivedDevice, Timestamp
from engine.kafka.timestamps import parse

CompanyDevice: TypeAlias = tuple[int, str]  # company id, udid

_DAY = 86_400.0


class _Numbered(msgspec.Struct):
    # No record in SQL has a greater id; the recorder makes a dead letter of a message with one.
    id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Notification(msgspec.Struct):
    id: UUID
    campaign: _Numbered
    company: _Numbered
    venue: _Numbered
    beacon: _Numbered
    device: ReceivedDevice
    detected_at: Timestamp


_decode_notification = msgspec.json.Decoder(_Notification).decode
_decode_authentication = msgspec.json.Decoder(Authentication).decode


class Interval(NamedTuple):
    """Instants from `since` up to, not including, `until`; epoch seconds."""

    since: float
    until: float

    def has(self, instant: float) -> bool:
        """Whether the range contains the instant."""
        return self.since <= instant < self.until


class DeviceShare(NamedTuple):
    """One of `passes` parts of all devices, so that each part fits into memory."""

    number: int = 0
    passes: int = 1

    def has(self, udid: str) -> bool:
        """Whether the device belongs to this part."""
        return self.passes == 1 or zlib.crc32(udid.encode()) % self.passes == self.number


class BeaconFact(NamedTuple):
    """A beacon of the catalog, its owner, and whether it and its venue are active now.

    `former_companies` owned deleted beacons with the same triple.
    """

    company_id: int
    active: bool
    former_companies: frozenset[int] = frozenset()


class ApplicationFact(NamedTuple):
    """An application of the catalog, its owner, and until when its key is valid."""

    company_id: int
    active: bool
    expire_on: datetime | None


class RecountCatalog(NamedTuple):
    """The current catalog, as far as it decides which records count."""

    beacons: Mapping[BeaconKey, BeaconFact]
    companies: frozenset[int]
    applications: Mapping[str, ApplicationFact]


class DeviceCounts(msgspec.Struct):
    """The topics' figures of one device.

    `traces`, `receptions` and `authentications` are for the time of which SQL keeps all rows.
    `uncounted` detections are at beacons that are inactive or deleted now, and `refused`
    authentications have keys that are not valid now: both were counted if the beacon was active, or
    the key valid, when they were recorded. `contested` detections (a part of `detections`) are at
    beacons that had another owner before: they were not counted if they were recorded then.
    """

    detections: int = 0
    notifications: int = 0
    traces: int = 0
    receptions: int = 0
    authentications: int = 0
    uncounted: int = 0
    contested: int = 0
    refused: int = 0


class Recount:
    """Counts the records of one share of the devices, one by one.

    `retained` is the time of which SQL still has every trace row; `read` gives the detections of a
    record, as DetectionDecoder does.
    """

    def __init__(
        self,
        catalog: RecountCatalog,
        *,
        retained: Interval,
        read: Callable[[Record], Iterable[DecodedDetection]],
        share: DeviceShare,
    ) -> None:
        self.devices: dict[CompanyDevice, DeviceCounts] = {}
        self.unknown_beacons: Counter[str] = Counter()
        self._catalog = catalog
        self._retained = retained
        self._read = read
        self._share = share
        self._seen: set[bytes] = set()

    def add_detection(self, record: Record) -> None:
        """Count the detections of a record. Raises the errors of its decoder."""
        for detection in self._read(record):
            self._count(detection)

    def _count(self, detection: DecodedDetection) -> None:
        udid = detection.message.device.udid
        if not self._share.has(udid):
            return
        beacon = self._catalog.beacons.get(detection.key)
        if beacon is None:
            self.unknown_beacons[udid] += 1
            return
        for company_id in beacon.former_companies - {beacon.company_id}:
            self._counts_of(company_id, udid).uncounted += 1
        counts = self._counts_of(beacon.company_id, udid)
        if not beacon.active:
            counts.uncounted += 1
            return
        counts.detections += 1
        counts.contested += bool(beacon.former_companies)
        counts.traces += self._has_a_row(detection.detected_at, detection.record)

    def add_notification(self, record: Record) -> None:
        """Count a record of `notifications`, unless its id was counted before."""
        message = _decode_notification(record.value or b"")
        detected_at = parse(message.detected_at)
        udid, company_id = _udid(message.device), message.company.id
        if not self._share.has(udid) or company_id not in self._catalog.companies:
            return
        if message.id.bytes in self._seen:
            return
        self._seen.add(message.id.bytes)
        counts = self._counts_of(company_id, udid)
        counts.notifications += 1
        counts.receptions += self._retained.has(detected_at)

    def add_authentication(self, record: Record) -> None:
        """Count a record of `authentications`."""
        message = _decode_authentication(record.value or b"")
        written = message.authenticated_at
        at = record.timestamp / 1000 if written is None else parse(written)
        udid = _udid(message.device)
        if "\0" in message.api_key:
            raise ValueError("an api_key has no NUL character")
        application = self._catalog.applications.get(message.api_key)
        if application is None or not self._share.has(udid) or not self._has_a_row(at, record):
            return
        end = application.expire_on
        counts = self._counts_of(application.company_id, udid)
        if application.active and (end is None or at < end.timestamp()):
            counts.authentications += 1
        else:
            counts.refused += 1

    def _has_a_row(self, at: float, record: Record) -> bool:
        """Whether a row is written: not if its time is more than a day after its record's."""
        return self._retained.has(at) and at <= record.timestamp / 1000 + _DAY

    def _counts_of(self, company_id: int, udid: str) -> DeviceCounts:
        key = (company_id, udid)
        counts = self.devices.get(key)
        if counts is None:
            counts = self.devices[key] = DeviceCounts()
        return counts


def count_all(records: list[Record], count: Callable[[Record], None]) -> int:
    """Count the records. Returns how many of them are malformed."""
    malformed = 0
    for record in records:
        try:
            count(record)
        except UNDECODABLE:
            malformed += 1
    return malformed


def _udid(device: ReceivedDevice) -> str:
    if "\0" in device.udid:
        raise ValueError("a udid has no NUL character")
    return device.udid
