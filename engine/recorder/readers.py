"""Reads the records of each topic and adds up a batch of them.

`read` decodes and looks up what the records name; `count` leaves out, in the transaction, what does
not count. `changes` and `rows` are pure: what the batch adds to devices, and, once SQL has told
their ids, to traces, receptions and daily figures. Instants are epoch seconds.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, get_args
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
    Detection,
    KnownDevice,
    ReceivedDevice,
    Timestamp,
    check_device,
    parse,
)
from engine.kafka.workers import Records
from engine.recorder.days import DayRule, LocalDay, local_day_around
from engine.recorder.ledger import (
    BEACON,
    CAMPAIGN,
    GEOFENCE,
    VENUE,
    ActivePlace,
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
    VisitEventRow,
    VisitFigures,
    VisitKey,
)
from engine.recorder.places import PlaceFinder, PlacesOf
from engine.redis.figures import MINUTES, BeaconMinute
from rules.model import PlaceKind, Zone

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
    visit_events: list[VisitEventRow] = field(default_factory=list)
    visits: dict[VisitKey, VisitFigures] = field(default_factory=dict)
    recent: Counter[BeaconMinute] = field(default_factory=Counter)

    def figures_of(self, day: date, kind: str, ref: int, venue_id: int) -> Figures:
        """The figures to increase."""
        key = StatisticKey(day, kind, ref)
        figures = self.figures.get(key)
        if figures is None:
            figures = self.figures[key] = Figures(venue_id)
        return figures


class Counted(NamedTuple):
    """A record that may count: when it was made and when it arrived, and what it names.

    `place` is the place and the zone of a detection, the time zone of a notification's venue, or
    the id of an authentication's application.
    """

    message: Any
    device: DeviceIdentity
    at: float
    arrived_at: float
    place: Any


class RecordReader(ABC):
    """Reads the records of one topic. All partitions share it; each topic has its own batches."""

    only_changes = False  # whether of detections only rows_of_changes are written

    @abstractmethod
    async def read(self, records: Records) -> list[Any]:
        """Decode the records, look up what they name and publish dead letters.

        Raises the database's errors.
        """

    async def count(self, transaction: LedgerTransaction, batch: list[Any]) -> list[Counted]:  # noqa: ARG002
        """The records of the batch that count. Called again if the transaction is repeated."""
        return batch

    def changes(self, counted: list[Counted]) -> Changes:
        """The additions to the counters of devices, and their last known facts."""
        changes: Changes = {}
        known: dict[DeviceIdentity, ReceivedDevice] = {}  # what was noted last
        for message, device, *_ in counted:
            if known.get(device) != message.device:
                known[device] = message.device
                _note_facts(changes.setdefault(device, DeviceChanges(*device)), message.device)
        return changes

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
        self.only_changes = self.trace == "changes"
        self._finder = PlaceFinder()

    async def read(self, records: Records) -> list[DecodedDetection]:
        batch = await self.decoder.decode(records)
        self.skipped.labels("malformed_detection").inc(len(batch.dead_letters))
        present = [each for each in batch.messages if not _is_exit(each.message)]
        self.exits.inc(len(batch.messages) - len(present))
        return present

    async def count(
        self, transaction: LedgerTransaction, batch: list[DecodedDetection]
    ) -> list[Counted]:
        return self.at(await self._finder.find(transaction, batch), batch)

    def at(self, places_of: PlacesOf, batch: Iterable[DecodedDetection]) -> list[Counted]:
        """The detections, one for each of their places."""
        return [
            Counted(
                each.message,
                (place.company_id, each.message.device.udid),
                each.detected_at,
                arrived_at_of(each.record),
                (place, each.zone),
            )
            for each in batch
            for place in places_of(each)
        ]

    def changes(self, counted: list[Counted]) -> Changes:
        changes = super().changes(counted)
        for _, device, _, _, (place, _) in counted:
            if place.kind == BEACON:
                changes[device].nb_beacon += 1
        return changes

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:
        rule, rows, traced = self.rule, NewRows(), self.trace != "none"
        # By place, the day that was counted last, with its figures: most detections are of it.
        last: dict[ActivePlace, tuple[LocalDay, tuple[Figures, Figures]]] = {}
        minutes_end = now // 60 * 60 + 60
        for message, device, at, arrived_at, (place, zone) in counted:
            device_id, is_test = devices[device]
            id_, venue_id, _, time_zone, kind = place
            arrived = rule.credible(arrived_at, now)
            if traced and rule.leaves_trace(at, arrived, now):
                create_on, ip = datetime.fromtimestamp(at, UTC), _stored_address(message.ip)
                beacon, geofence, scanned = _columns(kind, id_)
                row = DetectionRow(
                    device_id, venue_id, beacon, STATUS[zone], create_on, ip, geofence, scanned
                )
                rows.detections.append(row)
            if is_test:
                continue
            if kind == BEACON and minutes_end - 60 * MINUTES <= at < minutes_end:
                rows.recent[BeaconMinute(venue_id, id_, int(at // 60))] += 1
            found = last.get(place)
            is_fresh = abs(at - arrived) <= rule.max_age
            if found is None or not (is_fresh and found[0].since <= at < found[0].until):
                day = rule.day_of(at, arrived, now, time_zone)
                if day is None:
                    continue
                of_day = (
                    rows.figures_of(day, VENUE, venue_id, venue_id),
                    rows.figures_of(day, kind, id_, venue_id),
                )
                found = last[place] = (local_day_around(at, time_zone), of_day)
            for figures in found[1]:
                if kind == BEACON:
                    figures.detections += 1
                else:
                    figures.place_detections += 1
                figures.devices.add(device_id)
        return rows


def _is_exit(message: Detection) -> bool:
    return message.geofence is not None and message.geofence.transition == "exit"


def _columns(kind: str, id_: int) -> tuple[int | None, int | None, int | None]:
    """The columns beacon_id, geofence_id and scan_tag_id of a trace row."""
    if kind == BEACON:
        return id_, None, None
    return (None, id_, None) if kind == GEOFENCE else (None, None, id_)


Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # what SQL can store


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


@dataclass(kw_only=True)
class NotificationReader(RecordReader):
    """Reads notifications of all partitions, which share one `limit`."""

    ledger: Ledger
    dead_letters: DeadLetterPublisher
    limit: DeadLetterLimit
    skipped: CounterMetric
    rule: DayRule

    async def read(self, records: Records) -> list[Counted]:
        """Records whose company does not exist become dead letters."""
        decoded, dead = decode_records(records, _notification_of, self.limit)
        messages = [message for _, message, _ in decoded]
        companies = await self.ledger.existing_companies({each.company.id for each in messages})
        zones = await self.ledger.venue_time_zones({each.venue.id for each in messages})
        received = []
        for record, message, at in decoded:
            company, zone = message.company.id, zones.get(message.venue.id)
            if company in companies:
                device = (company, message.device.udid)
                received.append(Counted(message, device, at, arrived_at_of(record), zone))
            else:
                detail = f"no company has the id {company}"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_COMPANY, detail))
        await self.dead_letters.publish(dead)
        return received

    async def count(self, transaction: LedgerTransaction, batch: list[Counted]) -> list[Counted]:
        """Those that are new, each once."""
        by_id = {each.message.id: each for each in batch}
        known = await transaction.counted_notifications(by_id)
        repeated = len(batch) - len(by_id) + len(known)
        self.skipped.labels("repeated_notification").inc(repeated)
        return [each for id_, each in by_id.items() if id_ not in known]

    def changes(self, counted: list[Counted]) -> Changes:
        changes = super().changes(counted)
        for _, device, *_ in counted:
            changes[device].nb_campaign += 1
        return changes

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:
        """The figures leave out test devices, and notifications that count for no day."""
        rows = NewRows()
        for message, device, at, arrived_at, time_zone in counted:
            device_id, is_test = devices[device]
            campaign, venue = message.campaign.id, message.venue.id
            create_on = datetime.fromtimestamp(min(max(at, _FIRST), _LAST), UTC)
            rows.receptions.append(ReceptionRow(message.id, device_id, campaign, create_on))
            day = self.rule.day_of(at, arrived_at, now, time_zone)
            if is_test or day is None:
                continue
            for kind, ref in ((VENUE, venue), *message.places, (CAMPAIGN, campaign)):
                figures = rows.figures_of(day, kind, ref, venue)
                figures.notifications += 1
                figures.devices.add(device_id)
        return rows


def _notification_of(record: Record) -> tuple[Record, PublishedNotification, float]:
    message = _decode_notification(record.value or b"")
    check_device(message.device)
    return record, message, parse(message.detected_at)


_decode_authentication = msgspec.json.Decoder(Authentication).decode


@dataclass(kw_only=True)
class AuthenticationReader(RecordReader):
    """Reads authentications of all partitions, which share one `limit`."""

    ledger: Ledger
    dead_letters: DeadLetterPublisher
    limit: DeadLetterLimit
    rule: DayRule

    async def read(self, records: Records) -> list[Counted]:
        """Records with the key of no application become dead letters."""
        decoded, dead = decode_records(records, _authentication_of, self.limit)
        keys = {message.api_key for _, message, _ in decoded}
        applications = await self.ledger.applications(keys)
        accepted = []
        for record, message, at in decoded:
            application = applications.get(message.api_key)
            if application is not None and application.admits(at):
                device = (application.company_id, message.device.udid)
                accepted.append(Counted(message, device, at, arrived_at_of(record), application.id))
            else:
                # The message never quotes the key, because people read dead letters.
                detail = "the api_key belongs to no application that is active and not expired"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_APPLICATION, detail))
        await self.dead_letters.publish(dead)
        return accepted

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:
        return NewRows(
            authentications=[
                AuthenticationRow(
                    devices[device][0],
                    application,
                    datetime.fromtimestamp(at, UTC),
                    _stored_address(message.ip),
                )
                for message, device, at, arrived_at, application in counted
                if self.rule.leaves_trace(at, arrived_at, now)
            ]
        )


def _authentication_of(record: Record) -> tuple[Record, Authentication, float]:
    message = _decode_authentication(record.value or b"")
    check_device(message.device)
    if "\0" in message.api_key:
        raise ValueError("an api_key has no NUL character")
    at = message.authenticated_at
    return record, message, arrived_at_of(record) if at is None else parse(at)


def _note_facts(change: DeviceChanges, facts: ReceivedDevice) -> None:
    """Note the facts of a message that SQL can store.

    A push token is stored whole or not at all, because a shortened token is useless.
    """
    for name in ("name", "version", "model"):
        if (fact := getattr(facts, name)) is not None:
            setattr(change, name, _storable(fact, _LONGEST_NAME))
    if facts.token_push is not None and len(facts.token_push) <= _LONGEST_TOKEN:
        change.token_push = _storable(facts.token_push, _LONGEST_TOKEN)
    if facts.time_zone is not None:
        change.time_zone = facts.time_zone
    number = facts.id_connector
    if number is not None and -_INT64 <= number < _INT64:
        change.id_connector = number


def rows_of_changes(
    rows: Iterable[DetectionRow], states: dict[PresenceKey, PresenceState]
) -> list[DetectionRow]:
    """The rows, in order, that differ from the previous row of the device at the place.

    A row differs if it has another zone or is a minute or more later. `states` has the previous
    rows and is updated.
    """
    kept = []
    for row in rows:
        key = PresenceKey.of(row)
        last = states.get(key)
        if last is None or row.status != last.status or row.create_on - last.create_on >= _MINUTE:
            states[key] = PresenceState(row.status, row.create_on)
            kept.append(row)
    return kept


def arrived_at_of(record: Record) -> float:
    """The record's timestamp."""
    return float(record.timestamp) / 1000


def _stored_address(ip: str | None) -> str | None:
    return None if ip is None else _storable(ip, _LONGEST_IP)


def _storable(text: str, longest: int) -> str:
    """The text, cut to the column's length, without NUL characters (PostgreSQL has none)."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if len(text) <= longest else text[:longest]
