"""The port to SQL: one transaction that writes a batch and moves the partition's offset.

Both ledgers (dialects.py) run the statements of statements.sql, and one test suite
checks both. Rows are passed as one JSON list of objects. The methods raise the driver's errors;
engine.process.failures says which of them are temporary. Instants in rows are aware and in UTC.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from sqlalchemy import Date, Table, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from catalog.index.entries import ApplicationEntry
from catalog.models import Base, Instant
from engine.kafka.detections import (
    BeaconKey,
    DecodedDetection,
    GeofenceKey,
    PlaceKey,
    TagKey,
    find_keys,
)
from engine.kafka.offsets import Position
from rules.geofences import Circle, GeofenceGrid
from rules.model import PlaceKind, Reason

DeviceIdentity: TypeAlias = tuple[int, str]  # a device's company and its udid there
StoredDevice: TypeAlias = tuple[int, bool]  # its id, and whether it is a test device
Row: TypeAlias = dict[str, Any]  # by column
StatisticKey: TypeAlias = tuple[date, str, int]  # a day, and the kind and the id of a record
PresenceKey: TypeAlias = tuple[int, str, int]  # a device, and the kind and the id of a place
PresenceState: TypeAlias = tuple[str, datetime]  # the zone and the instant of a trace row
_ROWS = 10_000
_KEYS: dict[str, type[PlaceKey]] = {
    "active_beacons": BeaconKey,
    "active_geofences": GeofenceKey,
    "active_tags": TagKey,
}


class ActivePlace(NamedTuple):
    """An active beacon, geofence or tag at an active venue. `time_zone` is an IANA name."""

    id: int
    venue_id: int
    company_id: int
    time_zone: str | None
    kind: PlaceKind = "beacon"


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

    @property
    def presence(self) -> PresenceKey:
        for kind in ("geofence", "scan_tag"):
            if (ref := getattr(self, f"{kind}_id")) is not None:
                return self.device_id, kind, ref
        return self.device_id, "beacon", self.beacon_id or 0


class Figures(msgspec.Struct):
    """The additions to a day's figures, and the ids of the devices that they count.

    `detections` are at beacons, `place_detections` at other places.
    """

    venue_id: int
    detections: int = 0
    place_detections: int = 0
    notifications: int = 0
    devices: set[int] = msgspec.field(default_factory=set)


class VisitFigures(msgspec.Struct):
    """The additions to a row of visit_statistic."""

    venue_id: int
    begun: int = 0
    ended: int = 0
    seconds: int = 0


class VisitKey(NamedTuple):
    """One day of a venue, beacon or geofence (`kind`), and the least length of its visits."""

    day: date
    kind: str
    ref: int
    minutes: int


class LedgerTransaction:
    """An open transaction. It locks rows in the order of their keys.

    `sql` has the statements of statements.sql in the database's dialect.
    """

    def __init__(self, connection: AsyncConnection, sql: Mapping[str, str]) -> None:
        self.connection = connection
        self._sql = sql

    async def move_position(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        """Replace the position `old` (None: there is none yet); False if it is not `old`.

        Later writers of the partition wait for this transaction.
        """
        if old is None:
            return bool(await self.fetch("first_position", topic, partition, *new[:2]))
        moved = (*new[:2], *old[:2], old.topic_ended_before(new))
        return bool(await self.fetch("move_position", topic, partition, *moved))

    async def now(self) -> datetime:
        """The time on SQL's clock."""
        ((now,),) = await self.fetch("now")
        return _instant(now)

    async def active_places(self, keys: Collection[PlaceKey]) -> dict[PlaceKey, ActivePlace]:
        """The active places at active venues among `keys`."""
        found: dict[PlaceKey, ActivePlace] = {}
        for statement, type_ in _KEYS.items():
            wanted = [key._asdict() for key in keys if isinstance(key, type_)]
            width = len(type_._fields)
            for row in await self._fetch_for(statement, wanted):
                found[type_(*row[:width])] = ActivePlace(*row[width:])
        return found

    async def geofences(self, companies: Collection[int]) -> Mapping[int, GeofenceGrid]:
        """The active geofences at active venues of the companies, by company."""
        found: dict[int, list[Circle]] = {}
        for company_id, *circle in await self._fetch_for("active_circles", list(companies)):
            found.setdefault(company_id, []).append(Circle(*circle))
        return {company_id: _grid_of(tuple(circles)) for company_id, circles in found.items()}

    async def applications(self, keys: Collection[str]) -> Mapping[str, ApplicationEntry]:
        return {
            key: ApplicationEntry(
                id=number,
                company_id=company_id,
                active=bool(active),
                expires_at=None if end is None else _instant(end).timestamp(),
            )
            for key, number, company_id, active, end in await self._fetch_for(
                "applications", list(keys)
            )
        }

    async def existing_companies(self, ids: Collection[int]) -> set[int]:
        return {number for (number,) in await self._fetch_for("existing_companies", list(ids))}

    async def venue_time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        return dict(map(tuple, await self._fetch_for("venue_time_zones", list(venues))))

    async def add_devices(
        self, changes: Mapping[DeviceIdentity, DeviceChanges]
    ) -> Mapping[DeviceIdentity, StoredDevice]:
        """Create or update devices and increase their counters.

        Fields that are None stay unchanged. Raises IntegrityError if a company was deleted.
        """
        found = await self._fetch_for("add_devices", [changes[key] for key in sorted(changes)])
        return {(company_id, udid): (id_, bool(test)) for company_id, udid, id_, test in found}

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        await self._fetch_for("add_detections", [row._asdict() for row in rows])

    async def add_authentications(self, rows: Sequence[Row]) -> None:
        await self._fetch_for("add_authentications", rows)

    async def counted(self, table: str, ids: Collection[UUID]) -> set[UUID]:
        """The notifications (`reception`) or events (`visit_event`) that were counted before."""
        return {UUID(str(id_)) for (id_,) in await self._fetch_for(f"counted_{table}", list(ids))}

    async def add_counted(self, table: str, rows: Sequence[Row]) -> None:
        """Store notifications or events as counted.

        Raises IntegrityError if another transaction has just counted one of them.
        """
        await self._fetch_for(f"add_{table}", sorted(rows, key=lambda row: row["id"]))

    async def test_devices(self, devices: Collection[DeviceIdentity]) -> set[DeviceIdentity]:
        rows = [{"company_id": company_id, "udid": udid} for company_id, udid in devices]
        return {(company, udid) for company, udid in await self._fetch_for("test_devices", rows)}

    async def add_visits(self, figures: Mapping[VisitKey, VisitFigures]) -> None:
        rows = [key._asdict() | msgspec.structs.asdict(figures[key]) for key in sorted(figures)]
        await self._fetch_for("add_visits", rows)

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        """The last trace rows of devices at places."""
        rows = [{"device_id": device, "kind": kind, "ref": ref} for device, kind, ref in keys]
        found = await self._fetch_for("presences", rows)
        return {(device, kind, ref): (zone, _instant(at)) for device, kind, ref, zone, at in found}

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        """Replace the last trace rows of devices at places."""
        columns = ("device_id", "kind", "ref", "status", "create_on")
        rows = [dict(zip(columns, key + states[key], strict=True)) for key in sorted(states)]
        await self._fetch_for("set_presences", rows)

    async def add_statistics(self, figures: Mapping[StatisticKey, Figures]) -> None:
        """Add to daily figures. A device that is new in them is counted there."""
        rows = {
            key: dict(zip(("day", "kind", "ref"), key, strict=True))
            | msgspec.structs.asdict(figures[key])
            for key in sorted(figures)
        }
        added = Counter[StatisticKey]()
        for day, kind, ref, count in await self._fetch_for("add_devices_of_day", [*rows.values()]):
            added[date.fromisoformat(str(day)), kind, ref] += count
        counted = [row | {"devices": added[key]} for key, row in rows.items()]
        await self._fetch_for("add_statistics", counted)

    async def _fetch_for(self, name: str, rows: Sequence[Any]) -> Sequence[Any]:
        """Run a statement that takes rows; none without rows."""
        return await self.fetch(name, msgspec.json.encode(rows).decode()) if rows else []

    async def fetch(self, name: str, *parameters: object) -> Sequence[Any]:
        """Run a statement and return its rows."""
        result = await self.connection.exec_driver_sql(self._sql[name], parameters)
        return result.all() if result.returns_rows else []


@lru_cache(maxsize=20)  # companies, of at most 10,000 geofences unless a setting says otherwise
def _grid_of(circles: tuple[Circle, ...]) -> GeofenceGrid:
    return GeofenceGrid(circles)


async def find_places(
    transaction: LedgerTransaction, batch: Collection[DecodedDetection]
) -> list[tuple[DecodedDetection, ActivePlace]]:
    """The detections at active places, one for each of the places."""
    unkeyed = [each.message for each in batch if each.key is None]  # positions and tags
    # No application has a key with a NUL character, and PostgreSQL does not take one.
    api_keys = {text for each in unkeyed if "\0" not in (text := each.api_key or "\0")}
    applications = await transaction.applications(api_keys)
    asked = [applications.get(each.api_key or "") for each in unkeyed if each.position]
    grids = await transaction.geofences({each.company_id for each in asked if each})

    def keys_of(each: DecodedDetection) -> Iterable[PlaceKey]:
        if each.key is not None:
            return (each.key,)
        application = applications.get(each.message.api_key or "")
        grid = None if application is None else grids.get(application.company_id)
        keys = find_keys(each, application, grid)
        has_nul = each.message.tag is not None and "\0" in each.message.tag.value
        return () if has_nul or isinstance(keys, Reason) else keys

    keyed = [(each, key) for each in batch for key in keys_of(each)]
    found = await transaction.active_places({key for _, key in keyed})
    return [(each, found[key]) for each, key in keyed if key in found]


class Ledger(ABC):
    """The recorder's port to SQL. It shares the engine's pool and deadlines.

    Table names in its statements are constants, never from a user.
    """

    # How a statement finds the rows that a query names by the system's own row ids.
    _row_id: str
    _among: str
    _transaction = LedgerTransaction
    _sql: Mapping[str, str]

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[LedgerTransaction]:
        """A transaction: committed at the end, rolled back by an error."""
        async with self.engine.begin() as connection:
            yield self._transaction(connection, self._sql)

    async def positions(self, topic: str) -> Mapping[int, Position]:
        """The position of the first record that is not recorded, by partition with any records."""
        async with self.transaction() as transaction:
            rows = await transaction.fetch("positions", topic)
        return {number: Position(*place) for number, *place in rows}

    @abstractmethod
    async def create_days(self, first: date, last: date) -> int:
        """Create the missing partitions of these UTC days; returns how many were created.

        Several processes may call it at once.
        """

    @abstractmethod
    async def _delete_traces(self, since: datetime) -> int:
        """Delete the traces of earlier days; `since` is the beginning of a UTC day."""

    async def delete_old(self, first: date, counted: date) -> int:
        """Delete old rows; returns how many partitions were dropped and rows deleted.

        Kept are traces dated from the UTC day `first` on, receptions, presences and visit events
        recorded since then, and the devices that the figures from `counted` on count. (No trace is
        far in the future: see DayRule.)
        """
        since = datetime.combine(first, time(), UTC)
        deleted = await self._delete_traces(since)
        for table in ("reception", "presence", "visit_event"):
            deleted += await self._delete(table, "recorded_on", since)
        return deleted + await self._delete("statistic_device", "day", counted)

    async def _delete(self, table: str, column: str, limit: date) -> int:
        """Delete rows in pieces, so that no transaction is long."""
        rows = f"SELECT {self._row_id} FROM {table} WHERE {column} < :limit LIMIT {_ROWS}"  # noqa: S608
        statement = text(f"DELETE FROM {table} WHERE {self._row_id} {self._among.format(rows)}")  # noqa: S608
        type_ = Instant if isinstance(limit, datetime) else Date
        deleted = 0
        while True:
            async with self.engine.begin() as connection:
                bound = statement.bindparams(bindparam("limit", limit, type_))
                count = (await connection.execute(bound)).rowcount
            deleted += count
            if count < _ROWS:
                return deleted


def _instant(value: datetime | str) -> datetime:
    """An instant as SQL returns it: SQLite as text, in UTC."""
    if isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value).replace(tzinfo=UTC)


def statements(**macros: Callable[[str], str]) -> dict[str, str]:
    """The statements of statements.sql by name, in a dialect.

    A macro `{name argument}` is replaced by the result of `macros[name]`.
    """

    macros["add"] = lambda name: _adding_rows(Base.metadata.tables[name], macros["rows"])

    def expanded(macro: re.Match[str]) -> str:
        name, _, argument = " ".join(macro[1].split()).partition(" ")
        return macros[name](argument)

    source = (files("engine.recorder") / "statements.sql").read_text(encoding="utf-8")
    found = {}
    for part in source.split("-- name: ")[1:]:
        name, _, statement = part.partition("\n")
        found[name.strip()] = re.sub(r"\{(.*?)\}", expanded, statement, flags=re.DOTALL).strip()
    return found


def _adding_rows(table: Table, rows: Callable[[str], str]) -> str:
    """Inserts rows of daily figures; a row that exists already gets the sums."""
    columns, keys = list(table.columns), ", ".join(table.primary_key.columns.keys())
    names, typed = ", ".join(table.columns.keys()), [f"{each.name} {each.type}" for each in columns]
    figures = [each.name for each in columns if not each.primary_key and each.name != "venue_id"]
    sums = ", ".join(f"{each} = {table.name}.{each} + excluded.{each}" for each in figures)
    return (
        f"INSERT INTO {table.name} ({names}) SELECT {names} "  # noqa: S608  # names of ours
        f"FROM ({rows(', '.join(typed))}) AS figures WHERE true "
        f"ON CONFLICT ({keys}) DO UPDATE SET {sums}"
    )
