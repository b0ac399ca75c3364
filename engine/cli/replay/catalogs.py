"""A catalog for the rules: every beacon, compiled, with the names of venues and campaigns."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import select

from catalog.database import Database
from catalog.index.catalog_reader import beacon_fields, campaign_fields, connector_fields
from catalog.index.entries import (
    BeaconEntry,
    ConnectorEntry,
    decode_beacon,
    decode_campaign,
    decode_connector,
)
from catalog.models import Campaign, Company, Venue
from engine.kafka.detections import BeaconKey
from engine.trigger.beacon_cache import IndexedBeacon, assemble
from rules.local_time import LocalClock, fixed_clock, zone_clock
from rules.model import CampaignSnapshot, VenueSnapshot

_UTC = "UTC"


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


class ReplayedCatalog:
    """Beacons by key, campaigns and venues by id. `name` is the catalog's name in reports."""

    def __init__(
        self,
        name: str,
        beacons: Mapping[BeaconKey, IndexedBeacon],
        campaigns: Mapping[int, ReplayedCampaign],
        places: Mapping[int, VenueNames],
    ) -> None:
        self.name = name
        self.beacons = beacons
        self.campaigns = campaigns
        self.places = places


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


async def living_campaigns(database: Database) -> frozenset[int]:
    """The ids of the campaigns in SQL that are not deleted. Raises SQLAlchemyError or OSError."""
    async with database.read() as session:
        return frozenset(await session.scalars(select(Campaign.id)))


async def read_catalog(
    database: Database, name: str, known: Collection[int] | None = None
) -> ReplayedCatalog:
    """The whole catalog of a database.

    `known` has the ids of campaigns that are in SQL; None means all of them. Raises SQLAlchemyError
    or OSError.
    """
    # One snapshot, so that edits meanwhile do not matter; SQLite's transactions always have one.
    options: dict[str, Any] = {}
    if database.dialect == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    async with database.read() as session:
        await session.connection(execution_options=options)
        entries: list[BeaconEntry] = []
        async for _, fields in beacon_fields(session):
            entries += map(decode_beacon, fields.values())
        campaigns: dict[int, CampaignSnapshot] = {}
        async for _, fields in campaign_fields(session):
            campaigns |= {each.id: each for each in map(_awake, fields.values())}
        connectors: dict[int, ConnectorEntry] = {}
        async for _, fields in connector_fields(session):
            connectors |= {each.company_id: each for each in map(decode_connector, fields.values())}
        query = select(Venue.id, Company.name, Venue.name).join(Venue.company)
        places = {id_: VenueNames(*names) for id_, *names in await session.execute(query)}
        venues = await session.execute(select(Campaign.id, Campaign.venue_id))
        homes = {row.id: row.venue_id for row in venues}
    named = {
        id_: ReplayedCampaign(
            places[homes[id_]],
            campaign.name,
            id_ if known is None or id_ in known else None,
            campaign.format,
        )
        for id_, campaign in campaigns.items()
    }
    return ReplayedCatalog(name, _compiled(entries, campaigns, connectors), named, places)


def _awake(field: bytes) -> CampaignSnapshot:
    """The campaign without its content, which a replay does not need, and not asleep.

    A campaign that ended long ago could fire at the time of the detections.
    """
    return msgspec.structs.replace(decode_campaign(field).without_content(), asleep=False)


def _compiled(
    entries: Iterable[BeaconEntry],
    campaigns: Mapping[int, CampaignSnapshot],
    connectors: Mapping[int, ConnectorEntry],
) -> dict[BeaconKey, IndexedBeacon]:
    return {
        BeaconKey(entry.beacon.uuid, entry.beacon.major, entry.beacon.minor): assemble(
            entry, campaigns, connectors
        )
        for entry in entries
    }
