"""The port to SQL: one transaction that writes a batch and moves the partition's offset.

Both ledgers (postgresql.py, sqlite.py) run the statements of statements.sql, and one test suite
checks both. Rows are passed as one JSON list of objects. The methods raise the driver's errors;
engine.process.failures says which of them are temporary. Instants in rows are aware and in UTC.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, date, datetime
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey, TagKey
from engine.kafka.offsets import Position
from rules.model import PlaceKind

VENUE, CAMPAIGN = "venue", "campaign"
BEACON: Final = "beacon"
GEOFENCE: Final = "geofence"

DeviceIdentity: TypeAlias = tuple[int, str]  # a device's company and its udid there
StoredDevice: TypeAlias = tuple[int, bool]  # its id, and whether it is a test device
# A geofence: id, venue, company, time zone, latitude, longitude, radius.
CircleRow: TypeAlias = tuple[Any, ...]


class RecorderError(Exception):
    """The base of all errors of the recorder."""


class OffsetsError(RecorderError):
    """The offsets in SQL belong to other topics. The process stops; the message says what to do."""


class WriteAgainError(RecorderError):
    """The batch can be written again in a new transaction. None of it is written yet."""


class DayMissingError(RecorderError):
    """Rows are of days that have no partition yet. Create the days, and write the batch again."""

    def __init__(self, days: Collection[date] = ()) -> None:
        super().__init__(f"no partition of {', '.join(map(str, days))}")
        self.days = days


class ReadAgainError(RecorderError):
    """The batch is out of date and its records must be read again. None of it is written."""


class ActivePlace(NamedTuple):
    """An active beacon, geofence or tag at an active venue. `time_zone` is an IANA name."""

    id: int
    venue_id: int
    company_id: int
    time_zone: str | None
    kind: PlaceKind = "beacon"


class RegisteredApplication(NamedTuple):
    """A mobile application, whose key is valid until `expire_on`."""

    id: int
    company_id: int
    active: bool
    expire_on: datetime | None

    def admits(self, instant: float) -> bool:
        """Whether the key is valid at `instant` (epoch seconds)."""
        return self.active and (self.expire_on is None or instant < self.expire_on.timestamp())


class DeviceChanges(msgspec.Struct, gc=False):
    """The additions to a device's counters, and the last known facts of the device."""

    company_id: int
    udid: str
    nb_beacon: int = 0
    nb_campaign: int = 0
    token_push: str | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None
    id_connector: int | None = None
    time_zone: str | None = None


class DetectionRow(NamedTuple):
    """A row of detection_trace."""

    device_id: int
    venue_id: int
    beacon_id: int | None
    status: str
    create_on: datetime
    ip: str | None
    geofence_id: int | None = None
    scan_tag_id: int | None = None


class AuthenticationRow(msgspec.Struct, gc=False):
    """A row of authentication_trace."""

    device_id: int
    application_id: int
    create_on: datetime
    ip: str | None


class ReceptionRow(msgspec.Struct, gc=False):
    """A row of reception."""

    notification: UUID
    device_id: int
    campaign_id: int
    create_on: datetime


class PresenceKey(NamedTuple):
    """A device at a place: `kind` is beacon, geofence or scan_tag, `ref` its id."""

    device_id: int
    kind: str
    ref: int

    @classmethod
    def of(cls, row: DetectionRow) -> "PresenceKey":
        """The device and the place of a trace row."""
        if row.geofence_id is not None:
            return cls(row.device_id, "geofence", row.geofence_id)
        if row.scan_tag_id is not None:
            return cls(row.device_id, "scan_tag", row.scan_tag_id)
        return cls(row.device_id, "beacon", row.beacon_id or 0)


class PresenceState(NamedTuple):
    """The zone and the instant of the last trace row of a device at a beacon."""

    status: str
    create_on: datetime


class StatisticKey(NamedTuple):
    """One day of a venue, place or campaign (`kind`), `ref` its id."""

    day: date
    kind: str
    ref: int


class Figures(msgspec.Struct):
    """The additions to a day's figures, and the ids of the devices that they count.

    `detections` are at beacons, `place_detections` at other places.
    """

    venue_id: int
    detections: int = 0
    place_detections: int = 0
    notifications: int = 0
    devices: set[int] = msgspec.field(default_factory=set)


class VisitEventRow(msgspec.Struct, gc=False):
    """A row of visit_event."""

    id: UUID
    company_id: int
    at: datetime


class VisitKey(NamedTuple):
    """One day of a venue, beacon or geofence (`kind`), and the least length of its visits."""

    day: date
    kind: str
    ref: int
    minutes: int


class VisitFigures(msgspec.Struct):
    """The additions to a row of visit_statistic."""

    venue_id: int
    begun: int = 0
    ended: int = 0
    seconds: int = 0


class RetentionWindow(NamedTuple):
    """The rows to keep.

    They are traces dated from `since` to `until`, receptions, presences and visit events recorded
    from `since` on, and the devices that the figures from `day` on count.
    """

    since: datetime
    until: datetime
    day: date


class LedgerTransaction(ABC):
    """An open transaction. It locks rows in the order of their keys."""

    foreign_key_error: type[Exception]
    duplicate_error: type[Exception]

    async def advance_offset(self, topic: str, partition: int, old: int | None, new: int) -> bool:
        """Move the offset from `old` (None: there is none yet) to `new`; False if it is not `old`.

        Later writers of the partition wait for this transaction.
        """
        if old is None:
            return bool(await self._fetch("first_position", topic, partition, new, None))
        return bool(await self._fetch("advance_offset", topic, partition, new, old))

    async def move_position(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        """Replace the position `old` (None: there is none); False if it is not `old`.

        If `new` is of another topic, `verify` is told that the topic of `old` was deleted.
        """
        if old is None:
            return bool(await self._fetch("first_position", topic, partition, *new[:2]))
        if not await self._fetch("move_position", topic, partition, *new[:2], *old[:2]):
            return False
        if old.topic_ended_before(new):
            await self._fetch("note_past", topic)
        return True

    async def now(self) -> datetime:
        """The time on SQL's clock."""
        ((now,),) = await self._fetch("now")
        return _instant(now)

    async def active_beacons(self, keys: Collection[BeaconKey]) -> Mapping[PlaceKey, ActivePlace]:
        """The active beacons at active venues among `keys`."""
        found = await self._fetch_for("active_beacons", [key._asdict() for key in keys])
        return {
            BeaconKey(uuid, major, minor): ActivePlace(*beacon)
            for uuid, major, minor, *beacon in found
        }

    async def active_geofences(
        self, keys: Collection[GeofenceKey]
    ) -> Mapping[PlaceKey, ActivePlace]:
        """The active geofences at active venues among `keys`."""
        found = await self._fetch_for("active_geofences", [key.id for key in keys])
        return {
            GeofenceKey(place[0]): ActivePlace(*place)._replace(kind=GEOFENCE) for place in found
        }

    async def active_tags(self, keys: Collection[TagKey]) -> Mapping[PlaceKey, ActivePlace]:
        """The active NFC tags and QR codes at active venues among `keys`."""
        found = await self._fetch_for("active_tags", [key._asdict() for key in keys])
        return {
            TagKey(company_id, kind, value): ActivePlace(id_, venue_id, company_id, zone, kind)
            for company_id, kind, value, id_, venue_id, zone in found
        }

    async def active_circles(self, companies: Collection[int]) -> Mapping[int, Sequence[CircleRow]]:
        """The active geofences at active venues of the companies, by company."""
        found: dict[int, list[CircleRow]] = {}
        for row in await self._fetch_for("active_circles", list(companies)):
            found.setdefault(row[2], []).append(tuple(row))
        return found

    async def applications(self, keys: Collection[str]) -> Mapping[str, RegisteredApplication]:
        """Applications by their api_key."""
        return _applications(await self._fetch_for("applications", list(keys)))

    async def add_devices(
        self, changes: Mapping[DeviceIdentity, DeviceChanges]
    ) -> Mapping[DeviceIdentity, StoredDevice]:
        """Create or update devices and increase their counters.

        Fields that are None stay unchanged. Raises ReadAgainError if a company was deleted.
        """
        try:
            found = await self._fetch_for("add_devices", [changes[key] for key in sorted(changes)])
        except self.foreign_key_error as error:
            raise ReadAgainError("company_deleted") from error
        return {(company_id, udid): (id_, bool(test)) for company_id, udid, id_, test in found}

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        """Append rows to the trace. Raises DayMissingError."""
        await self._fetch_for("add_detections", [row._asdict() for row in rows])

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        """Append rows to the trace. Raises DayMissingError."""
        await self._fetch_for("add_authentications", rows)

    async def counted_notifications(self, ids: Collection[UUID]) -> set[UUID]:
        """The notifications that were counted before."""
        found = await self._fetch_for("counted_notifications", list(ids))
        return {UUID(str(number)) for (number,) in found}

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        """Store notifications as counted.

        Raises WriteAgainError if another transaction has just counted one of them.
        """
        try:
            await self._fetch_for("add_receptions", sorted(rows, key=lambda r: r.notification))
        except self.duplicate_error as error:
            raise WriteAgainError("already_counted") from error

    async def counted_visit_events(self, ids: Collection[UUID]) -> set[UUID]:
        """The enters and exits that were counted before."""
        found = await self._fetch_for("counted_visit_events", list(ids))
        return {UUID(str(number)) for (number,) in found}

    async def test_devices(self, devices: Collection[DeviceIdentity]) -> set[DeviceIdentity]:
        """The test devices among these."""
        rows = [{"company_id": company_id, "udid": udid} for company_id, udid in devices]
        return {(company, udid) for company, udid in await self._fetch_for("test_devices", rows)}

    async def add_visits(
        self, events: Sequence[VisitEventRow], figures: Mapping[VisitKey, VisitFigures]
    ) -> None:
        """Store events as counted, and add to daily figures of visits.

        Raises WriteAgainError if another transaction has just counted one of the events.
        """
        try:
            await self._fetch_for("add_visit_events", sorted(events, key=lambda row: row.id))
        except self.duplicate_error as error:
            raise WriteAgainError("already_counted") from error
        rows = [key._asdict() | msgspec.structs.asdict(figures[key]) for key in sorted(figures)]
        await self._fetch_for("add_visits", rows)

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        """The last trace rows of devices at places."""
        found = await self._fetch_for("presences", [key._asdict() for key in keys])
        return {
            PresenceKey(device, kind, ref): PresenceState(status, _instant(at))
            for device, kind, ref, status, at in found
        }

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        """Replace the last trace rows of devices at places."""
        rows = [key._asdict() | states[key]._asdict() for key in sorted(states)]
        await self._fetch_for("set_presences", rows)

    async def add_statistics(self, figures: Mapping[StatisticKey, Figures]) -> None:
        """Add to daily figures. A device that is new in them is counted there."""
        keys = sorted(figures)
        members = [key._asdict() | {"devices": sorted(figures[key].devices)} for key in keys]
        added = Counter[StatisticKey]()
        for day, kind, ref, count in await self._fetch_for("add_statistic_devices", members):
            added[StatisticKey(date.fromisoformat(str(day)), kind, ref)] += count
        rows = [
            key._asdict()
            | {
                "venue_id": figures[key].venue_id,
                "detections": figures[key].detections,
                "place_detections": figures[key].place_detections,
                "devices": added[key],
                "notifications": figures[key].notifications,
            }
            for key in keys
        ]
        await self._fetch_for("add_statistics", rows)

    async def _fetch_for(self, name: str, rows: Sequence[Any]) -> Sequence[Any]:
        """Run a statement that takes rows; none without rows."""
        return await self._fetch(name, as_json(rows)) if rows else []

    @abstractmethod
    async def _fetch(self, name: str, *parameters: object) -> Sequence[Any]:
        """Run a statement and return its rows."""


class Ledger(ABC):
    """The recorder's port to SQL."""

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[LedgerTransaction]:
        """A transaction: committed at the end, rolled back by an error."""

    async def positions(self, topic: str) -> Mapping[int, Position]:
        """The position of the first record that is not recorded, by partition with any records."""
        return {number: Position(*place) for number, *place in await self._find("positions", topic)}

    async def existing_companies(self, ids: Iterable[int]) -> set[int]:
        """The ids among `ids` whose companies exist."""
        return {number for (number,) in await self._find("existing_companies", as_json(ids))}

    async def venue_time_zones(self, venues: Iterable[int]) -> Mapping[int, str | None]:
        """The time zones of the venues that exist."""
        return dict(map(tuple, await self._find("venue_time_zones", as_json(venues))))

    async def applications(self, keys: Iterable[str]) -> Mapping[str, RegisteredApplication]:
        """Applications by their api_key."""
        return _applications(await self._find("applications", as_json(keys)))

    async def now(self) -> datetime:
        """The time on SQL's clock."""
        ((now,),) = await self._find("now")
        return _instant(now)

    @abstractmethod
    async def create_days(self, days: Collection[date]) -> int:
        """Create the missing partitions of these UTC days; returns how many were created.

        Several processes may call it at once.
        """

    @abstractmethod
    async def delete_outside(self, window: RetentionWindow) -> int:
        """Delete rows outside the window; how many partitions were dropped and rows deleted."""

    @abstractmethod
    async def _find(self, name: str, *parameters: str) -> Sequence[Any]:
        """Run a statement outside of a transaction and return its rows."""


def _applications(rows: Sequence[Any]) -> dict[str, RegisteredApplication]:
    return {
        key: RegisteredApplication(
            number, company, bool(active), None if expire_on is None else _instant(expire_on)
        )
        for key, number, company, active, expire_on in rows
    }


def as_json(values: Iterable[Any]) -> str:
    """The parameter of a statement that takes rows or a list."""
    return msgspec.json.encode(list(values)).decode()


def _instant(value: datetime | str) -> datetime:
    """An instant as SQL returns it: SQLite as text, in UTC."""
    if isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value).replace(tzinfo=UTC)


def statements(**macros: Callable[[str], str]) -> dict[str, str]:
    """The statements of statements.sql by name, in a dialect.

    A macro `{name argument}` is replaced by the result of `macros[name]`.
    """

    def expanded(macro: re.Match[str]) -> str:
        name, _, argument = " ".join(macro[1].split()).partition(" ")
        return macros[name](argument)

    text = (files("engine.recorder") / "statements.sql").read_text(encoding="utf-8")
    found = {}
    for part in text.split("-- name: ")[1:]:
        name, _, statement = part.partition("\n")
        found[name.strip()] = re.sub(r"\{(.*?)\}", expanded, statement, flags=re.DOTALL).strip()
    return found
