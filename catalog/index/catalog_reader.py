"""Reads index entries from SQL in chunks: a few statements a chunk, whatever the catalog's size."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import sql_now
from catalog.index.content import may_fire
from catalog.index.entries import (
    BeaconEntry,
    ConnectorEntry,
    beacon_field,
    campaign_field,
    connector_field,
    encode,
)
from catalog.models import (
    Beacon,
    Campaign,
    Connector,
    Venue,
)
from catalog.models.base import at_offset
from catalog.targets import CampaignTargets
from rules.model import BeaconSnapshot, CampaignSnapshot, VenueSnapshot, Zone

Fields = dict[str, bytes]
Chunks = AsyncIterator[tuple[list[int], Fields]]

CHUNK = 1000
_CAMPAIGNS = 100  # each may carry tens of kilobytes, and a chunk is one call to Redis
_EVERY = true()


async def beacon_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The ids and the entries of the beacons that meet the condition, in chunks."""
    last = 0
    while rows := await _beacons_after(session, last, condition):
        last = rows[-1].id
        venues = {row.id: row.venue_id for row in rows}
        campaigns = await CampaignTargets(session).of(venues)
        yield list(venues), dict(_beacon_field(row, campaigns[row.id]) for row in rows)


async def campaign_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The ids and the entries of the campaigns that meet the condition, in chunks."""
    last = 0
    now = await sql_now(session)
    query = select(*Campaign.__table__.columns, Venue.time_zone, Venue.active.label("venue_active"))
    query = query.join(Venue, Campaign.venue_id == Venue.id).where(condition)
    query = query.order_by(Campaign.id).limit(_CAMPAIGNS)
    while rows := (await session.execute(query.where(Campaign.id > last))).all():
        last = rows[-1].id
        yield [row.id for row in rows], dict(_campaign_field(row, now) for row in rows)


async def connector_fields(
    session: AsyncSession, condition: ColumnElement[bool] = _EVERY
) -> Chunks:
    """The company ids and the entries of the connectors that meet the condition, in chunks."""
    last = 0
    columns = (getattr(Connector, name) for name in ConnectorEntry.__struct_fields__)
    query = select(*columns).where(condition).order_by(Connector.company_id).limit(CHUNK)
    while rows := (await session.execute(query.where(Connector.company_id > last))).all():
        ids = [row.company_id for row in rows]
        last = ids[-1]
        entries = (ConnectorEntry(**row._mapping) for row in rows)  # noqa: SLF001  # its public name
        yield ids, {connector_field(entry.company_id): encode(entry) for entry in entries}


async def _beacons_after(
    session: AsyncSession, last: int, condition: ColumnElement[bool]
) -> Sequence[Row[*tuple[Any, ...]]]:
    query = (
        select(
            Beacon.id,
            Beacon.name,
            Beacon.uuid,
            Beacon.major,
            Beacon.minor,
            Beacon.active,
            Beacon.proximity,
            Venue.id.label("venue_id"),
            Venue.name.label("venue_name"),
            Venue.company_id,
            Venue.active.label("venue_active"),
            Venue.time_zone,
        )
        .join(Venue, Beacon.venue_id == Venue.id)
        .where(condition, Beacon.id > last)
        .order_by(Beacon.id)
        .limit(CHUNK)
    )
    return (await session.execute(query)).all()


def _beacon_field(row: Any, campaigns: Iterable[int]) -> tuple[str, bytes]:
    venue = VenueSnapshot(
        id=row.venue_id,
        name=row.venue_name,
        company_id=row.company_id,
        active=row.venue_active,
        time_zone=row.time_zone,
    )
    beacon = BeaconSnapshot(
        id=row.id,
        name=row.name,
        uuid=row.uuid,
        major=row.major,
        minor=row.minor,
        active=row.active,
        reach=Zone[row.proximity.upper()],
        venue=venue,
    )
    field = beacon_field(row.uuid, row.major, row.minor)
    return field, encode(BeaconEntry(beacon=beacon, campaigns=sorted(campaigns)))


def _campaign_field(row: Any, now: datetime) -> tuple[str, bytes]:
    campaign = CampaignSnapshot(
        id=row.id,
        name=row.name,
        hash=row.hash,
        active=row.active,
        title=row.title,
        push=row.push,
        format=row.format,
        content=None if row.format == "connector" else getattr(row, row.format),
        background=row.background,
        color=row.color,
        delay=row.delay,
        start=at_offset(row.start_at, row.start_offset),
        end=at_offset(row.end_at, row.end_offset),
        start_minute=row.start_minute,
        end_minute=row.end_minute,
        weekdays=row.weekdays,
        time_zone=row.time_zone,
    )
    if not may_fire(
        active=row.active,
        venue_active=row.venue_active,
        start=row.start_at,
        end=row.end_at,
        now=now,
    ):
        campaign = campaign.without_content()
    return campaign_field(row.id), encode(campaign)
