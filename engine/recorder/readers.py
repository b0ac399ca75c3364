"""Reads the records of each topic and adds up a batch of them.

`read` decodes and looks up what the records name; `count` leaves out, in the transaction, what does
not count. `changes` and `rows` are pure: what the batch adds to devices, and, once SQL has told
their ids, to traces, receptions and daily figures. Instants are epoch seconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from prometheus_client import Counter

from engine.formats.decoders import DetectionDecoder
from engine.kafka.dead_letters import (
    DeadLetter,
    DeadLetterLimit,
    DeadLetterPublisher,
    DeadLetterReason,
)
from engine.kafka.detections import BeaconKey, DecodedDetection, Record, decode_records
from engine.kafka.messages import (
    Authentication,
    KnownDevice,
    ReceivedDevice,
    Timestamp,
    check_udid,
    parse,
)
from engine.kafka.workers import Records
from engine.recorder.days import DAY, DayRule, local_day_around
from engine.recorder.ledger import (
    BEACON,
    CAMPAIGN,
    VENUE,
    ActiveBeacon,
    AuthenticationRow,
    DetectionRow,
    DeviceChanges,
    DeviceIdentity,
    Figures,
    Ledger,
    LedgerTransaction,
    PresenceKey,
    PresenceState,
    ReceptionRow,
    StatisticKey,
    StoredDevice,
)
from engine.redis.figures import MINUTES, BeaconMinute
from rules.model import Zone

Trace = Literal["all", "changes", "none"]
Changes = dict[DeviceIdentity, DeviceChanges]
StoredDevices = Mapping[DeviceIdentity, StoredDevice]

STATUS = {zone: zone.name.lower() for zone in Zone}  # of a trace row
_LONGEST_NAME, _LONGEST_TOKEN = 255, 4096
_LONGEST_IP = 64  # enough for an address with a port and a zone
_INT64 = 2**63
# A timestamp with an offset may lie a few hours beyond year 1 or 9999.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
_MINUTE = timedelta(minutes=1)


@dataclass
class NewRows:
    """The rows that a batch adds to SQL besides its devices.

    `recent` counts the detections of the last minutes, for Redis.
    """

    detections: list[DetectionRow] = field(default_factory=list)
    authentications: list[AuthenticationRow] = field(default_factory=list)
    receptions: list[ReceptionRow] = field(default_factory=list)
    figures: dict[StatisticKey, Figures] = field(default_factory=dict)
    recent: dict[BeaconMinute, int] = field(default_factory=dict)

    def count(self, key: StatisticKey, venue_id: int, devices: Iterable[int]) -> Figures:
        """Count the devices under `key`, and return the figures to increase."""
        figures = self.figures.get(key)
        if figures is None:
            figures = self.figures[key] = Figures(venue_id)
        figures.devices.update(devices)
        return figures


class RecordReader(ABC):
    """Reads the records of one topic. All partitions share it; each topic has its own batches."""

    only_changes = False  # whether of detections only rows_of_changes are written

    @abstractmethod
    async def read(self, records: Records) -> list[Any]:
        """Decode the records, look up what they name and publish dead letters.

        Raises the database's errors.
        """

    async def count(self, transaction: LedgerTransaction, batch: list[Any]) -> list[Any]:  # noqa: ARG002
        """The records of the batch that count. Called again if the transaction is repeated."""
        return batch

    @abstractmethod
    def changes(self, counted: list[Any]) -> Changes:
        """The additions to the counters of devices, and their last known facts."""

    @abstractmethod
    def rows(self, counted: list[Any], devices: StoredDevices, now: float) -> NewRows:
        """The other rows to write. `now` is SQL's clock."""


# A detection of an active beacon at an active venue.
CountedDetection: TypeAlias = tuple[DecodedDetection, ActiveBeacon, DeviceIdentity]


@dataclass(kw_only=True)
class DetectionReader(RecordReader):
    """Decodes detections as the trigger does; the trigger makes the dead letters.

    `rule` says for which day a detection counts, `trace` which detections leave a trace row.
    """

    decoder: DetectionDecoder
    trace: Trace
    skipped: Counter
    rule: DayRule

    def __post_init__(self) -> None:
        self.only_changes = self.trace == "changes"

    async def read(self, records: Records) -> list[DecodedDetection]:
        batch = await self.decoder.decode(records)
        self.skipped.labels("malformed_detection").inc(len(batch.dead_letters))
        return batch.messages

    async def count(
        self, transaction: LedgerTransaction, batch: list[DecodedDetection]
    ) -> list[CountedDetection]:
        return self.at(await transaction.active_beacons({each.key for each in batch}), batch)

    def at(
        self, beacons: Mapping[BeaconKey, ActiveBeacon], batch: Iterable[DecodedDetection]
    ) -> list[CountedDetection]:
        """The detections of these beacons."""
        return [
            (each, beacon, (beacon.company_id, each.message.device.udid))
            for each in batch
            if (beacon := beacons.get(each.key)) is not None
        ]

    def changes(self, counted: list[CountedDetection]) -> Changes:
        changes: Changes = {}
        known: dict[DeviceIdentity, ReceivedDevice] = {}  # what was noted last
        for detection, _, device in counted:
            facts = detection.message.device
            if known.get(device) == facts:
                changes[device].nb_beacon += 1
            else:
                known[device] = facts
                change_device(changes, device, facts).nb_beacon += 1
        return changes

    def rows(self, counted: list[CountedDetection], devices: StoredDevices, now: float) -> NewRows:
        rule, rows, tallies = self.rule, NewRows(), dict[int, _BeaconTally]()
        traces, traced = rows.detections, self.trace != "none"
        for detection, beacon, device in counted:
            device_id, is_test = devices[device]
            at, arrived = detection.detected_at, rule.credible(_arrived_at(detection.record), now)
            if traced and now - rule.retention - DAY <= at <= arrived + DAY:
                create_on = datetime.fromtimestamp(at, UTC)
                status, ip = STATUS[detection.zone], _stored_address(detection.message.ip)
                row = (device_id, beacon.venue_id, beacon.beacon_id, status, create_on, ip)
                traces.append(DetectionRow._make(row))
            if not is_test:
                tally = tallies.get(beacon.beacon_id)
                if tally is None:
                    tally = tallies[beacon.beacon_id] = _BeaconTally(beacon, rule, now)
                tally.add(device_id, at, arrived)
        for tally in tallies.values():
            tally.add_to(rows)
        return rows


class _BeaconTally:
    """Counts the detections of one beacon by day, and those of the last minutes."""

    def __init__(self, beacon: ActiveBeacon, rule: DayRule, now: float) -> None:
        self._beacon = beacon
        self._rule = rule
        self._now = now
        self._days: dict[date, list[int]] = {}
        self._since = self._until = 0.0  # of the day that was counted last, whose ids are _today
        self._today: list[int] = []
        self._minutes: dict[int, int] = {}
        self._recent_end = now // 60 * 60 + 60
        self._recent_begin = self._recent_end - 60 * MINUTES

    def add(self, device_id: int, at: float, arrived: float) -> None:
        """Count one detection, unless it counts for no day. `arrived` is credible."""
        if self._recent_begin <= at < self._recent_end:
            minute = int(at // 60)
            self._minutes[minute] = self._minutes.get(minute, 0) + 1
        is_fresh = -self._rule.max_age <= at - arrived <= self._rule.max_age
        if not (is_fresh and self._since <= at < self._until):
            zone = self._beacon.time_zone
            day = self._rule.day_of(at, arrived, self._now, zone)
            if day is None:
                return
            self._since, self._until, _ = local_day_around(at, zone)
            self._today = self._days.setdefault(day, [])
        self._today.append(device_id)

    def add_to(self, rows: NewRows) -> None:
        """Add the figures."""
        beacon, venue = self._beacon.beacon_id, self._beacon.venue_id
        for day, ids in self._days.items():
            for kind, ref in ((VENUE, venue), (BEACON, beacon)):
                rows.count(StatisticKey(day, kind, ref), venue, ids).detections += len(ids)
        for minute, count in self._minutes.items():
            rows.recent[BeaconMinute(venue, beacon, minute)] = count


Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # what SQL can store


class Reference(msgspec.Struct, frozen=True, gc=False):
    """The id of a campaign, company, venue or beacon."""

    id: Id


class PublishedNotification(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a notification that the recorder reads."""

    id: UUID
    campaign: Reference
    company: Reference
    venue: Reference
    beacon: Reference
    device: KnownDevice
    detected_at: Timestamp


class ReceivedNotification(NamedTuple):
    """A notification with the times of its detection and its record, and its venue's time zone."""

    message: PublishedNotification
    device: DeviceIdentity
    detected_at: float
    arrived_at: float
    time_zone: str | None


_decode_notification = msgspec.json.Decoder(PublishedNotification).decode


@dataclass(kw_only=True)
class NotificationReader(RecordReader):
    """Reads notifications of all partitions, which share one `limit`."""

    ledger: Ledger
    dead_letters: DeadLetterPublisher
    limit: DeadLetterLimit
    skipped: Counter
    rule: DayRule

    async def read(self, records: Records) -> list[ReceivedNotification]:
        """Records whose company does not exist become dead letters."""
        decoded, dead, _ = decode_records(records, _notification_of, self.limit)
        messages = [message for _, message, _ in decoded]
        companies = await self.ledger.existing_companies({each.company.id for each in messages})
        zones = await self.ledger.venue_time_zones({each.venue.id for each in messages})
        received = []
        for record, message, at in decoded:
            company, zone = message.company.id, zones.get(message.venue.id)
            if company in companies:
                device = (company, message.device.udid)
                arrived = _arrived_at(record)
                received.append(ReceivedNotification(message, device, at, arrived, zone))
            else:
                detail = f"no company has the id {company}"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_COMPANY, detail))
        await self.dead_letters.publish(dead)
        return received

    async def count(
        self, transaction: LedgerTransaction, batch: list[ReceivedNotification]
    ) -> list[ReceivedNotification]:
        """Those that are new, each once."""
        by_id = {each.message.id: each for each in batch}
        known = await transaction.counted_notifications(by_id)
        repeated = len(batch) - len(by_id) + len(known)
        self.skipped.labels("repeated_notification").inc(repeated)
        return [each for id_, each in by_id.items() if id_ not in known]

    def changes(self, counted: list[ReceivedNotification]) -> Changes:
        changes: Changes = {}
        for each in counted:
            change_device(changes, each.device, each.message.device).nb_campaign += 1
        return changes

    def rows(
        self, counted: list[ReceivedNotification], devices: StoredDevices, now: float
    ) -> NewRows:
        """The figures leave out test devices, and notifications that count for no day."""
        rows = NewRows()
        for each in counted:
            message, (device_id, is_test) = each.message, devices[each.device]
            campaign, venue = message.campaign.id, message.venue.id
            create_on = datetime.fromtimestamp(min(max(each.detected_at, _FIRST), _LAST), UTC)
            rows.receptions.append(ReceptionRow(message.id, device_id, campaign, create_on))
            day = self.rule.day_of(each.detected_at, each.arrived_at, now, each.time_zone)
            if is_test or day is None:
                continue
            for kind, ref in ((VENUE, venue), (BEACON, message.beacon.id), (CAMPAIGN, campaign)):
                key = StatisticKey(day, kind, ref)
                rows.count(key, venue, (device_id,)).notifications += 1
        return rows


def _notification_of(record: Record) -> tuple[Record, PublishedNotification, float]:
    message = _decode_notification(record.value or b"")
    check_udid(message.device.udid)
    return record, message, parse(message.detected_at)


class AcceptedAuthentication(NamedTuple):
    """An authentication with a valid key, and the times of the message and its record."""

    message: Authentication
    device: DeviceIdentity
    authenticated_at: float
    arrived_at: float
    application: int


_decode_authentication = msgspec.json.Decoder(Authentication).decode


@dataclass(kw_only=True)
class AuthenticationReader(RecordReader):
    """Reads authentications of all partitions, which share one `limit`."""

    ledger: Ledger
    dead_letters: DeadLetterPublisher
    limit: DeadLetterLimit
    rule: DayRule

    async def read(self, records: Records) -> list[AcceptedAuthentication]:
        """Records with the key of no application become dead letters."""
        decoded, dead, _ = decode_records(records, _authentication_of, self.limit)
        keys = {message.api_key for _, message, _ in decoded}
        applications = await self.ledger.applications(keys)
        accepted = []
        for record, message, at in decoded:
            application = applications.get(message.api_key)
            if application is not None and application.admits(at):
                device = (application.company_id, message.device.udid)
                arrived = _arrived_at(record)
                accepted.append(
                    AcceptedAuthentication(message, device, at, arrived, application.id)
                )
            else:
                # The message never quotes the key, because people read dead letters.
                detail = "the api_key belongs to no application that is active and not expired"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_APPLICATION, detail))
        await self.dead_letters.publish(dead)
        return accepted

    def changes(self, counted: list[AcceptedAuthentication]) -> Changes:
        changes: Changes = {}
        for each in counted:
            change_device(changes, each.device, each.message.device)
        return changes

    def rows(
        self, counted: list[AcceptedAuthentication], devices: StoredDevices, now: float
    ) -> NewRows:
        return NewRows(
            authentications=[
                AuthenticationRow(
                    devices[each.device][0],
                    each.application,
                    datetime.fromtimestamp(each.authenticated_at, UTC),
                    _stored_address(each.message.ip),
                )
                for each in counted
                if self.rule.leaves_trace(each.authenticated_at, each.arrived_at, now)
            ]
        )


def _authentication_of(record: Record) -> tuple[Record, Authentication, float]:
    message = _decode_authentication(record.value or b"")
    if "\0" in message.device.udid or "\0" in message.api_key:
        raise ValueError("udid and api_key have no NUL characters")
    at = message.authenticated_at
    return record, message, _arrived_at(record) if at is None else parse(at)


def change_device(
    changes: Changes, identity: DeviceIdentity, facts: ReceivedDevice
) -> DeviceChanges:
    """The device's changes, with the facts of a message that SQL can store.

    A push token is stored whole or not at all, because a shortened token is useless.
    """
    change = changes.get(identity)
    if change is None:
        change = changes[identity] = DeviceChanges(*identity)
    if facts.name is not None:
        change.name = _storable(facts.name, _LONGEST_NAME)
    if facts.version is not None:
        change.version = _storable(facts.version, _LONGEST_NAME)
    if facts.model is not None:
        change.model = _storable(facts.model, _LONGEST_NAME)
    if facts.token_push is not None and len(facts.token_push) <= _LONGEST_TOKEN:
        change.token_push = _storable(facts.token_push, _LONGEST_TOKEN)
    number = facts.id_connector
    if number is not None and -_INT64 <= number < _INT64:
        change.id_connector = number
    return change


def rows_of_changes(
    rows: Iterable[DetectionRow], states: dict[PresenceKey, PresenceState]
) -> list[DetectionRow]:
    """The rows, in order, that differ from the previous row of the device at the beacon.

    A row differs if it has another zone or is a minute or more later. `states` has the previous
    rows and is updated.
    """
    kept = []
    for row in rows:
        key = PresenceKey(row.device_id, row.beacon_id)
        last = states.get(key)
        if last is None or row.status != last.status or row.create_on - last.create_on >= _MINUTE:
            states[key] = PresenceState(row.status, row.create_on)
            kept.append(row)
    return kept


def _arrived_at(record: Record) -> float:
    """The record's timestamp."""
    return float(record.timestamp) / 1000


def _stored_address(ip: str | None) -> str | None:
    return None if ip is None else _storable(ip, _LONGEST_IP)


def _storable(text: str, longest: int) -> str:
    """The text, cut to the column's length, without NUL characters (PostgreSQL has none)."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if len(text) <= longest else text[:longest]
