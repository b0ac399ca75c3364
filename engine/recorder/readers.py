"""Reads the records of each topic and adds up a batch of them.

`read` decodes; `count` looks up what the messages name and leaves out, in the transaction, what
does not count. `changes` and `rows` are pure: what the batch adds to devices, and, once SQL has
told their ids, to traces, receptions and daily figures. Instants are epoch seconds.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

import msgspec
from prometheus_client import Counter as CounterMetric

from engine.formats.decoders import DetectionDecoder
from engine.kafka.dead_letters import (
    DeadLetter,
    DeadLetterLimit,
    DeadLetterPublisher,
    DeadLetterReason,
)
from engine.kafka.detections import DecodedDetection, Record, decode_records
from engine.kafka.messages import (
    Authentication,
    Id,
    KnownDevice,
    PresenceEvent,
    ReceivedDevice,
    Timestamp,
    check_device,
    parse,
    parse_text,
)
from engine.kafka.workers import Records
from engine.recorder.days import DayRule, local_day
from engine.recorder.ledger import (
    DetectionRow,
    DeviceChanges,
    DeviceIdentity,
    Figures,
    LedgerTransaction,
    Row,
    StatisticKey,
    StoredDevice,
    VisitFigures,
    VisitKey,
    find_places,
)
from engine.redis.figures import MINUTES, BeaconMinute
from rules.model import PlaceKind, Zone
from rules.visits import length_class

Trace = Literal["all", "changes", "none"]
Changes = dict[DeviceIdentity, DeviceChanges]
StoredDevices = Mapping[DeviceIdentity, StoredDevice]

STATUS = {zone: zone.name.lower() for zone in Zone}  # of a trace row
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # of what a datetime holds


@dataclass
class NewRows:
    """The rows that a batch adds to SQL besides its devices.

    `recent` counts the detections of the last minutes, for Redis.
    """

    detections: list[DetectionRow] = field(default_factory=list)
    authentications: list[Row] = field(default_factory=list)
    receptions: list[Row] = field(default_factory=list)
    figures: dict[StatisticKey, Figures] = field(default_factory=dict)
    visit_events: list[Row] = field(default_factory=list)
    visits: dict[VisitKey, VisitFigures] = field(default_factory=dict)
    recent: Counter[BeaconMinute] = field(default_factory=Counter)

    def figures_of(self, day: date, kind: str, ref: int, venue_id: int) -> Figures:
        key = (day, kind, ref)
        figures = self.figures.get(key)
        if figures is None:
            figures = self.figures[key] = Figures(venue_id)
        return figures


class Counted(NamedTuple):
    """A message that may count: its record, when it was made, and what it names.

    `place` is the place and the zone of a detection, the time zone of a notification's venue, the
    id of an authentication's application, or the time zone of an event's venue and whether it is of
    a test device.
    """

    message: Any
    device: DeviceIdentity
    at: float
    record: Record
    place: Any = None

    @property
    def arrived_at(self) -> float:
        return float(self.record.timestamp) / 1000

    @property
    def instant(self) -> datetime:
        """When it was made. A timestamp with an offset may lie beyond year 1 or 9999."""
        return datetime.fromtimestamp(min(max(self.at, _FIRST), _LAST), UTC)


class RecordReader(ABC):
    """Reads the records of one topic. All partitions share it; each topic has its own batches."""

    trace: Trace = "all"  # which detections leave a trace row
    largest_piece = 1_000_000  # records of a transaction; batches are smaller

    @abstractmethod
    async def read(self, records: Records) -> list[Any]:
        """Decode the records and publish dead letters."""

    @abstractmethod
    async def count(self, transaction: LedgerTransaction, batch: list[Any]) -> list[Counted]:
        """The messages of the batch that count. Called again if the transaction is repeated."""

    @abstractmethod
    def changes(self, counted: list[Counted]) -> Changes:
        """The additions to the counters of devices, and their last known facts."""

    @abstractmethod
    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:
        """The other rows to write. `now` is SQL's clock."""


@dataclass(kw_only=True)
class DetectionReader(RecordReader):
    """Decodes detections as the trigger does; the trigger makes the dead letters.

    `rule` says for which day a detection counts, `trace` which detections leave a trace row.
    """

    decoder: DetectionDecoder
    trace: Trace
    skipped: CounterMetric
    exits: CounterMetric  # of geofences, which count nothing
    rule: DayRule

    def __post_init__(self) -> None:
        self.largest_piece = self.decoder.records_at_once

    async def read(self, records: Records) -> list[DecodedDetection]:
        decoded, dead = await self.decoder.decode(records)
        self.skipped.labels("malformed_detection").inc(len(dead))
        present = [
            each
            for each in decoded
            if each.message.geofence is None or each.message.geofence.transition != "exit"
        ]
        self.exits.inc(len(decoded) - len(present))
        return present

    async def count(
        self, transaction: LedgerTransaction, batch: list[DecodedDetection]
    ) -> list[Counted]:
        return [
            Counted(
                each.message,
                (place.company_id, each.message.device.udid),
                each.detected_at,
                each.record,
                (place, each.zone),
            )
            for each, place in await find_places(transaction, batch)
        ]

    def changes(self, counted: list[Counted]) -> Changes:
        changes = _known_facts(counted)
        for each in counted:
            changes[each.device].nb_beacon += each.place[0].kind == "beacon"
        return changes

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:
        rule, rows, traced = self.rule, NewRows(), self.trace != "none"
        minutes_end = now // 60 * 60 + 60
        for each in counted:
            place, zone = each.place
            at, id_, kind = each.at, place.id, place.kind
            device_id, is_test = devices[each.device]
            is_beacon = kind == "beacon"
            if traced and rule.leaves_trace(at, now):
                row = DetectionRow(
                    device_id=device_id,
                    venue_id=place.venue_id,
                    beacon_id=id_ if is_beacon else None,
                    status=STATUS[zone],
                    create_on=each.instant,
                    ip=_stored_address(each.message.ip),
                    geofence_id=id_ if kind == "geofence" else None,
                    scan_tag_id=id_ if kind in ("nfc", "qrcode") else None,
                )
                rows.detections.append(row)
            if is_test:
                continue
            if is_beacon and minutes_end - 60 * MINUTES <= at < minutes_end:
                rows.recent[BeaconMinute(place.venue_id, id_, int(at // 60))] += 1
            day = rule.day_of(at, each.arrived_at, now, place.time_zone)
            if day is None:
                continue
            for of, ref in (("venue", place.venue_id), (kind, id_)):
                figures = rows.figures_of(day, of, ref, place.venue_id)
                figures.detections += is_beacon
                figures.place_detections += not is_beacon
                figures.devices.add(device_id)
        return rows


@dataclass(kw_only=True)
class OwnTopicReader(RecordReader):
    """Reads a topic that is read by nobody else, so that dead letters are the recorder's.

    All partitions share one `limit`.
    """

    dead_letters: DeadLetterPublisher
    limit: DeadLetterLimit
    skipped: CounterMetric
    rule: DayRule

    @staticmethod
    @abstractmethod
    def decode(record: Record) -> Counted:
        """The message of a record. Raises UNDECODABLE."""

    async def read(self, records: Records) -> list[Counted]:
        decoded, dead = decode_records(records, self.decode, self.limit)
        await self.dead_letters.publish(dead)
        return decoded

    async def new(
        self, transaction: LedgerTransaction, table: str, batch: Collection[Counted], repeated: str
    ) -> list[Counted]:
        """Those whose ids were not counted before, each once."""
        by_id = {UUID(str(each.message.id)): each for each in batch}
        known = await transaction.counted(table, by_id)
        self.skipped.labels(repeated).inc(len(batch) - len(by_id) + len(known))
        return [each for id_, each in by_id.items() if id_ not in known]


class Reference(msgspec.Struct, frozen=True, gc=False):
    """The id of a campaign, company, venue or place."""

    id: Id


class PublishedNotification(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a notification that the recorder reads."""

    id: UUID
    campaign: Reference
    company: Reference
    venue: Reference
    beacon: Reference | None = None
    geofence: Reference | None = None
    nfc: Reference | None = None
    qrcode: Reference | None = None
    device: KnownDevice
    detected_at: Timestamp

    def __post_init__(self) -> None:
        if len(self.places) != 1:
            raise ValueError("it has one of beacon, geofence, nfc and qrcode")

    @property
    def places(self) -> list[tuple[str, int]]:
        """The kind and the id of each named place: of one, once it is decoded."""
        found = {kind: getattr(self, kind) for kind in get_args(PlaceKind)}
        return [(kind, place.id) for kind, place in found.items() if place is not None]


_decode_notification = msgspec.json.Decoder(PublishedNotification).decode


class NotificationReader(OwnTopicReader):
    @staticmethod
    def decode(record: Record) -> Counted:
        message = _decode_notification(record.value or b"")
        check_device(message.device)
        device = (message.company.id, message.device.udid)
        return Counted(message, device, parse(message.detected_at), record)

    async def count(self, transaction: LedgerTransaction, batch: list[Counted]) -> list[Counted]:
        """Those that are new; records whose company does not exist become dead letters."""
        companies = await transaction.existing_companies({each.device[0] for each in batch})
        known, dead = [], []
        for each in batch:
            if each.device[0] in companies:
                known.append(each)
            else:
                detail = f"no company has the id {each.device[0]}"
                dead.append(DeadLetter(each.record, DeadLetterReason.UNKNOWN_COMPANY, detail))
        await self.dead_letters.publish(dead)
        new = await self.new(transaction, "reception", known, "repeated_notification")
        zones = await transaction.venue_time_zones({each.message.venue.id for each in new})
        return [each._replace(place=zones.get(each.message.venue.id)) for each in new]

    def changes(self, counted: list[Counted]) -> Changes:
        sent = Counter(each.device for each in counted)
        return {key: DeviceChanges(*key, nb_campaign=count) for key, count in sent.items()}

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:
        """The figures leave out test devices, and notifications that count for no day."""
        rows = NewRows()
        for each in counted:
            message, (device_id, is_test) = each.message, devices[each.device]
            campaign, venue = message.campaign.id, message.venue.id
            rows.receptions.append(
                {
                    "id": message.id,
                    "device_id": device_id,
                    "campaign_id": campaign,
                    "create_on": each.instant,
                }
            )
            day = self.rule.day_of(each.at, each.arrived_at, now, each.place)
            if is_test or day is None:
                continue
            for kind, ref in (("venue", venue), *message.places, ("campaign", campaign)):
                figures = rows.figures_of(day, kind, ref, venue)
                figures.notifications += 1
                figures.devices.add(device_id)
        return rows


_decode_authentication = msgspec.json.Decoder(Authentication).decode


class AuthenticationReader(OwnTopicReader):
    @staticmethod
    def decode(record: Record) -> Counted:
        message = _decode_authentication(record.value or b"")
        check_device(message.device)
        if "\0" in message.api_key:
            raise ValueError("an api_key has no NUL character")
        at = message.authenticated_at
        counted = Counted(message, (0, message.device.udid), 0.0, record)
        return counted._replace(at=counted.arrived_at if at is None else parse(at))

    async def count(self, transaction: LedgerTransaction, batch: list[Counted]) -> list[Counted]:
        """Records with the key of no application become dead letters."""
        applications = await transaction.applications({each.message.api_key for each in batch})
        counted, dead = [], []
        for each in batch:
            application = applications.get(each.message.api_key)
            if application is not None and application.admits(each.at):
                device = (application.company_id, each.device[1])
                counted.append(each._replace(device=device, place=application.id))
            else:
                # The message never quotes the key, because people read dead letters.
                detail = "the api_key belongs to no application that is active and not expired"
                dead.append(DeadLetter(each.record, DeadLetterReason.UNKNOWN_APPLICATION, detail))
        await self.dead_letters.publish(dead)
        return counted

    def changes(self, counted: list[Counted]) -> Changes:
        return _known_facts(counted)

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:
        return NewRows(
            authentications=[
                {
                    "device_id": devices[each.device][0],
                    "application_id": each.place,
                    "create_on": each.instant,
                    "ip": _stored_address(each.message.ip),
                }
                for each in counted
                if self.rule.leaves_trace(each.at, now)
            ]
        )


_decode_event = msgspec.json.Decoder(PresenceEvent).decode


class PresenceReader(OwnTopicReader):
    """Reads `presence` and counts visits: how many begin on a day, how many end, their lengths.

    A visit counts for the day of its entry, also when it ends later. Devices are neither made nor
    changed.
    """

    @staticmethod
    def decode(record: Record) -> Counted:
        message = _decode_event(record.value or b"")
        check_device(message.device)
        if message.duration_seconds is None and message.type == "exit":
            raise ValueError("duration_seconds is missing")
        UUID(message.id)
        device = (message.company.id, message.device.udid)
        return Counted(message, device, parse_text(message.entered_at), record)

    async def count(self, transaction: LedgerTransaction, batch: list[Counted]) -> list[Counted]:
        """Enters and exits that are new."""
        counting = [each for each in batch if each.message.type != "dwell"]
        new = await self.new(transaction, "visit_event", counting, "repeated_presence")
        tests = await transaction.test_devices({each.device for each in new})
        zones = await transaction.venue_time_zones({each.message.venue.id for each in new})
        return [
            each._replace(place=(zones.get(each.message.venue.id), each.device in tests))
            for each in new
        ]

    def changes(self, counted: list[Counted]) -> Changes:  # noqa: ARG002
        return {}

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:  # noqa: ARG002
        """The figures leave out test devices, and entries that are too old or in the future."""
        rows = NewRows()
        for each in counted:
            message, (time_zone, is_test) = each.message, each.place
            if not self.rule.leaves_trace(each.at, now):
                continue
            rows.visit_events.append(
                {"id": UUID(message.id), "company_id": each.device[0], "at": each.instant}
            )
            if is_test:
                continue
            ended, seconds = message.type == "exit", message.duration_seconds or 0
            day, minutes = local_day(each.at, time_zone), length_class(seconds)
            key = VisitKey(day, message.place.kind, message.place.id, minutes)
            figures = rows.visits.setdefault(key, VisitFigures(message.venue.id))
            figures.begun += not ended
            figures.ended += ended
            figures.seconds += seconds * ended
        return rows


def _known_facts(counted: Iterable[Counted]) -> Changes:
    """The last known facts of the devices, without NUL characters (PostgreSQL has none)."""
    changes: Changes = {}
    known: dict[DeviceIdentity, ReceivedDevice] = {}  # what was noted last
    for message, device, *_ in counted:
        facts: ReceivedDevice = message.device
        if known.get(device) == facts:
            continue
        known[device] = facts
        change = changes.setdefault(device, DeviceChanges(*device))
        for name in ("name", "version", "model", "token_push", "time_zone"):
            if (fact := getattr(facts, name)) is not None:
                setattr(change, name, fact.replace("\0", ""))
        if facts.id_connector is not None:
            change.id_connector = facts.id_connector
    return changes


def _stored_address(ip: str | None) -> str | None:
    return None if ip is None else ip.replace("\0", "")
