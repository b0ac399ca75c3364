"""Catalogs for the rules: SQL's, or a document loaded over a temporary copy of SQL's.

SQL itself is only read: loading in a transaction that is rolled back would hold locks and use up
ids.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import insert, select

from catalog.database import Database, open_database, with_write_lock
from catalog.index import entries, reading
from catalog.limits import CatalogLimits
from catalog.load import load_document
from catalog.migrate import migrate
from catalog.models import Base, Campaign, Company, Device, Venue
from catalog.secrets import open_cipher
from engine.cli.servers import open_snapshot
from engine.kafka.detections import PlaceKey
from engine.redis.devices import DeviceKey
from engine.trigger.place_cache import IndexedPlace, assemble, key_of
from rules.geofences import GeofenceGrid

T = TypeVar("T")

_CHUNK = 500
# What a replay needs of SQL: no accounts, and no figures.
_TABLES = (
    *("company", "application", "connector", "venue", "tag", "device"),
    *("beacon", "geofence", "scan_tag", "campaign", "beacon_tag", "geofence_tag", "scan_tag_tag"),
    *("campaign_beacon", "campaign_geofence", "campaign_scan_tag", "campaign_tag"),
)


class ReplayedCampaign(NamedTuple):
    """A campaign by its names. `campaign_id` is SQL's; None for one that is only in a file."""

    company: str
    venue: str
    campaign: str
    campaign_id: int | None
    format: str

    @property
    def key(self) -> tuple[str, ...] | int:
        """The identity of a campaign, the same in two catalogs."""
        return self[:3] if self.campaign_id is None else self.campaign_id


class ReplayedCatalog(NamedTuple):
    """Places by key, and campaigns by id. `name` is the catalog's name in reports.

    `company_data` has applications and grids of geofences by their fields of the index.
    `time_zones` has the devices that have one, for quiet hours.
    """

    name: str
    places: Mapping[PlaceKey | None, IndexedPlace]
    campaigns: Mapping[int, ReplayedCampaign]
    company_data: Mapping[str, Any] = {}
    time_zones: Mapping[DeviceKey, str] = {}


async def read_catalog(
    database: Database, name: str, known: Collection[int] | None = None
) -> ReplayedCatalog:
    """The whole catalog of a database.

    `known` has the ids of campaigns that are in SQL; None means all of them. Raises SQLAlchemyError
    or OSError.
    """
    async with open_snapshot(database) as connection, database.read(bind=connection) as session:
        places = [
            place
            for kind in ("beacons", "geofences", "tags")
            for place in (await _all(reading.READERS[kind](session), entries.decode_place)).values()
        ]
        circles = await _all(reading.circle_fields(session), entries.decode_geofences)
        data: dict[str, Any] = {field: GeofenceGrid(of.circles) for field, of in circles.items()}
        data |= await _all(reading.application_fields(session), entries.decode_application)
        found = await _all(reading.campaign_fields(session), entries.decode_campaign)
        calls = await _all(reading.connector_fields(session), entries.decode_connector)
        of_companies = await _all(reading.rules_fields(session), entries.decode_rules)
        campaigns = {each.id: each for each in found.values()}
        connectors = {each.company_id: each for each in calls.values()}
        rules = {each.company_id: each for each in of_companies.values()}
        query = select(Campaign.id, Company.name, Venue.name)
        query = query.join(Venue, Campaign.venue_id == Venue.id).join(Venue.company)
        named = {
            id_: ReplayedCampaign(
                *(company, venue, campaigns[id_].name),
                id_ if known is None or id_ in known else None,
                campaigns[id_].format,
            )
            for id_, company, venue in await session.execute(query)
            if id_ in campaigns
        }
        quiet = [company_id for company_id, each in rules.items() if each.quiet_hours]
        devices = select(Device.company_id, Device.udid, Device.time_zone).where(
            Device.time_zone.is_not(None), Device.company_id.in_(quiet)
        )
        zones = {
            DeviceKey(company_id, udid): zone
            for company_id, udid, zone in await session.execute(devices)
            if zone
        }
    compiled: dict[PlaceKey | None, IndexedPlace] = {
        key_of(entry.place): assemble(entry, campaigns, connectors, rules) for entry in places
    }
    return ReplayedCatalog(name, compiled, named, data, zones)


async def _all(
    chunks: AsyncIterator[Mapping[str, bytes]], decode: Callable[[bytes], T]
) -> dict[str, T]:
    return {name: decode(entry) async for fields in chunks for name, entry in fields.items()}


@asynccontextmanager
async def loaded_over(
    database: Database | None, raw: bytes, limits: CatalogLimits
) -> AsyncIterator[tuple[Database, frozenset[int]]]:
    """A temporary copy of a database's catalog, or an empty one, with a document loaded over it.

    With it come the ids of the campaigns that are in `database`. The hosts of connectors are not
    resolved. Raises LoadError, SQLAlchemyError or OSError.
    """
    with TemporaryDirectory(prefix="proximity-") as directory:
        url = f"sqlite:///{directory}/catalog.sqlite3"
        await migrate(url)
        copy = open_database(url)
        try:
            known = frozenset[int]() if database is None else await _copy(database, copy)
            # Nobody reads the secrets of the copy.
            cipher = open_cipher(secrets.token_urlsafe(32))
            await load_document(copy.write, raw, cipher, limits=limits)
            yield copy, known
        finally:
            await copy.close()


async def _copy(source: Database, target: Database) -> frozenset[int]:
    """Copy the catalog, with what was deleted, which links still name, and of the devices those
    that have a time zone. Returns the ids of its campaigns."""
    async with open_snapshot(source) as reader, with_write_lock(target.engine).begin() as writer:
        for table in map(Base.metadata.tables.__getitem__, _TABLES):
            query = select(table)
            if table.name == "device":
                query = query.where(table.c.time_zone.is_not(None))
            async with reader.stream(query) as rows:
                async for chunk in rows.mappings().partitions(_CHUNK):
                    await writer.execute(insert(table), [dict(row) for row in chunk])
        return frozenset(await writer.scalars(select(Campaign.id)))
