"""Catalogs for the rules: SQL's, or a document loaded over a temporary copy of SQL's.

SQL itself is only read: loading in a transaction that is rolled back would hold locks and use up
ids.
"""

import secrets
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Table, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from catalog.database import Database, open_database, with_write_lock
from catalog.index.entries import (
    ConnectorEntry,
    PlaceEntry,
    decode_application,
    decode_campaign,
    decode_connector,
    decode_geofences,
    decode_place,
    decode_rules,
)
from catalog.index.reading import (
    application_fields,
    beacon_fields,
    campaign_fields,
    circle_fields,
    connector_fields,
    geofence_fields,
    rules_fields,
    scan_tag_fields,
)
from catalog.limits import CatalogLimits
from catalog.load import load_document
from catalog.migrate import migrate
from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Device,
    Geofence,
    ScanTag,
    Tag,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_geofence,
    campaign_scan_tag,
    campaign_tag,
    geofence_tag,
    scan_tag_tag,
)
from catalog.secrets import open_cipher
from engine.cli.servers import open_snapshot
from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey, TagKey
from engine.redis.devices import DeviceKey
from engine.trigger.place_cache import IndexedPlace, assemble
from rules.geofences import GeofenceGrid
from rules.model import (
    BeaconSnapshot,
    CampaignSnapshot,
    CompanyRules,
    Place,
    TagSnapshot,
    VenueSnapshot,
)
from rules.schedule import LocalClock, fixed_clock, zone_clock

_UTC = "UTC"
_CHUNK = 500
_PLACES: Sequence[Any] = (Beacon, Geofence, ScanTag)
_TABLES: Sequence[Any] = (
    *(model.__table__ for model in (Company, Application, Connector, Venue, Tag, Device)),
    *(model.__table__ for model in (*_PLACES, Campaign)),
    *(beacon_tag, geofence_tag, scan_tag_tag),
    *(campaign_beacon, campaign_geofence, campaign_scan_tag, campaign_tag),
)
# Parts of a document that are not in the catalog, or have no effect on decisions.
_NOT_PLACES = ("accounts", "devices")


class VenueNames(NamedTuple):
    """A venue of a company, by their names."""

    company: str
    venue: str


class ReplayedCampaign(NamedTuple):
    """A campaign by its names. `id` is SQL's; None for a campaign that is only in a file."""

    place: VenueNames
    name: str
    id: int | None
    format: str

    @property
    def key(self) -> tuple[str, ...] | int:
        """The identity of a campaign, the same in two catalogs."""
        return (*self.place, self.name) if self.id is None else self.id


class ReplayedCatalog(NamedTuple):
    """Places by key, campaigns and venues by id. `name` is the catalog's name in reports.

    `company_data` has applications and grids of geofences by their fields of the index.
    `time_zones` has the devices that have one, for quiet hours.
    """

    name: str
    places: Mapping[PlaceKey | None, IndexedPlace]
    campaigns: Mapping[int, ReplayedCampaign]
    venues: Mapping[int, VenueNames]
    company_data: Mapping[str, Any] = {}
    time_zones: Mapping[DeviceKey, str] = {}


def venue_clock(venue: VenueSnapshot) -> LocalClock:
    """The local time of a venue; UTC if it has no time zone or an unknown one."""
    return _clock(venue.time_zone)


def campaign_clock(campaign: CampaignSnapshot) -> LocalClock:
    """The local time that the rules use for a campaign."""
    offset = campaign.start.utcoffset()
    if campaign.time_zone is None and offset is not None:
        return fixed_clock(offset)
    return _clock(campaign.time_zone)


def _clock(zone: str | None) -> LocalClock:
    try:
        return zone_clock(zone or _UTC)
    except ValueError:  # the beacons leave its campaigns out, as the trigger does
        return zone_clock(_UTC)


async def read_catalog(
    database: Database, name: str, known: Collection[int] | None = None
) -> ReplayedCatalog:
    """The whole catalog of a database.

    `known` has the ids of campaigns that are in SQL; None means all of them. Raises SQLAlchemyError
    or OSError.
    """
    async with open_snapshot(database) as connection, AsyncSession(connection) as session:
        entries: list[PlaceEntry[Place]] = []
        for place_fields in (beacon_fields, geofence_fields, scan_tag_fields):
            async for fields in place_fields(session):
                entries += map(decode_place, fields.values())
        data: dict[str, Any] = {}
        async for fields in application_fields(session):
            data |= {field: decode_application(entry) for field, entry in fields.items()}
        async for fields in circle_fields(session):
            for field, entry in fields.items():
                data[field] = GeofenceGrid(decode_geofences(entry).circles)
        campaigns: dict[int, CampaignSnapshot] = {}
        async for fields in campaign_fields(session):
            campaigns |= {each.id: each for each in map(_awake, fields.values())}
        connectors: dict[int, ConnectorEntry] = {}
        async for fields in connector_fields(session):
            connectors |= {each.company_id: each for each in map(decode_connector, fields.values())}
        rules: dict[int, CompanyRules] = {}
        async for fields in rules_fields(session):
            rules |= {each.company_id: each for each in map(decode_rules, fields.values())}
        query = select(Venue.id, Company.name, Venue.name).join(Venue.company)
        names = {id_: VenueNames(*names) for id_, *names in await session.execute(query)}
        venues = await session.execute(select(Campaign.id, Campaign.venue_id))
        homes = {row.id: row.venue_id for row in venues}
        devices = select(Device.company_id, Device.udid, Device.time_zone).where(
            Device.time_zone.is_not(None),
            Device.company_id.in_(company for company in rules if rules[company].quiet_hours),
        )
        zones = {
            DeviceKey(company, udid): zone
            for company, udid, zone in await session.execute(devices)
            if zone
        }
    named = {
        id_: ReplayedCampaign(
            names[homes[id_]],
            campaign.name,
            id_ if known is None or id_ in known else None,
            campaign.format,
        )
        for id_, campaign in campaigns.items()
    }
    compiled: dict[PlaceKey | None, IndexedPlace] = {
        _key_of(entry.place): assemble(entry, campaigns, connectors, rules) for entry in entries
    }
    return ReplayedCatalog(name, compiled, named, names, data, zones)


def _key_of(place: Place) -> PlaceKey:
    if isinstance(place, BeaconSnapshot):
        return BeaconKey(place.uuid, place.major, place.minor)
    if isinstance(place, TagSnapshot):
        return TagKey(place.venue.company_id, place.kind, place.value)
    return GeofenceKey(place.id)


def _awake(field: bytes) -> CampaignSnapshot:
    """The campaign without its content, which a replay does not need, and not asleep.

    A campaign that ended long ago could fire at the time of the detections.
    """
    return msgspec.structs.replace(decode_campaign(field).without_content(), asleep=False)


async def make_empty(path: Path) -> None:
    """Make an SQLite file with empty tables."""
    await migrate(f"sqlite:///{path}")


async def copy_catalog(source: Database, path: Path) -> frozenset[int]:
    """Copy the catalog of `source` to a new file, without accounts, traces, and devices that have
    no time zone.

    Returns the ids of its campaigns. Raises SQLAlchemyError or OSError.
    """
    await make_empty(path)
    target = open_database(f"sqlite:///{path}")
    try:
        async with (
            open_snapshot(source) as reading,
            with_write_lock(target.engine).begin() as writing,
        ):
            for table in _TABLES:
                await _copy_table(table, reading, writing)
            return frozenset(await writing.scalars(select(Campaign.id)))
    finally:
        await target.close()


async def _copy_table(table: Table, reading: AsyncConnection, writing: AsyncConnection) -> None:
    query = select(table)
    if table is Device.__table__:
        query = query.where(Device.time_zone.is_not(None))
    if "deleted_at" in table.c:
        query = query.where(table.c.deleted_at.is_(None))
    async with reading.stream(query) as rows:
        async for chunk in rows.mappings().partitions(_CHUNK):
            await writing.execute(insert(table), [dict(row) for row in chunk])


@asynccontextmanager
async def loaded_over(base: Path, raw: bytes, limits: CatalogLimits) -> AsyncIterator[Database]:
    """A database with a document loaded over the catalog in the file `base`, which is not changed.

    Accounts and devices of the document are ignored, and the hosts of connectors are
    not resolved. Raises LoadError, SQLAlchemyError or OSError.
    """
    path = base.with_name(f"{secrets.token_hex(4)}.sqlite3")
    shutil.copyfile(base, path)
    database = open_database(f"sqlite:///{path}")
    try:
        # Nobody reads the secrets of the copy.
        await load_document(
            database.write, _places_only(raw), open_cipher(secrets.token_urlsafe(32)), limits=limits
        )
        yield database
    finally:
        await database.close()


def _places_only(raw: bytes) -> bytes:
    """The document without accounts and devices.

    A document that cannot be parsed is returned unchanged: the loader reports its faults.
    """
    try:
        document = msgspec.json.decode(raw)
        for company in document["companies"]:
            for name in _NOT_PLACES:
                company.pop(name, None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return raw
    return msgspec.json.encode(document)
