"""Reads index entries from SQL in chunks: a few statements a chunk, whatever the catalog's size.

Redis holds the index of all companies in memory. So a campaign that is inactive, at an inactive
venue or long over is written to the index with its schedule alone: the decision and its reason stay
the same, and no content is needed. Detections may arrive late, hence the margin.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, exists, or_, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import sql_now
from catalog.index.entries import (
    ConnectorEntry,
    PlaceEntry,
    beacon_field,
    campaign_field,
    connector_field,
    decode_beacon,
    decode_campaign,
    encode,
)
from catalog.models import (
    Beacon,
    Campaign,
    Connector,
    Venue,
    at_offset,
    beacon_tag,
    campaign_beacon,
    campaign_tag,
)
from rules.decision import Target
from rules.explanation import awake_campaign
from rules.model import BeaconSnapshot, CampaignSnapshot, VenueSnapshot, Zone

Fields = dict[str, bytes]
Chunks = AsyncIterator[tuple[list[int], Fields]]

CHUNK = 1000
_CAMPAIGNS = 100  # each may carry tens of kilobytes, and a chunk is one call to Redis
_EVERY = true()
AFTER_END = timedelta(days=10)  # longer than MAX_DETECTION_AGE, an offset and a whole day


def may_fire(*, active: bool, venue_active: bool, end: datetime, now: datetime) -> bool:
    """Whether a campaign's entry needs its content from `now` on."""
    return active and venue_active and now <= end + AFTER_END


def targeted_by(campaigns: Collection[int]) -> ColumnElement[bool]:
    """Beacons that one of the campaigns, deleted ones too, names or reaches by a tag."""
    named = select(campaign_beacon.c.beacon_id).where(campaign_beacon.c.campaign_id.in_(campaigns))
    every = Campaign.__table__  # without the criteria of sessions
    tagged = (
        select(every.c.venue_id, beacon_tag.c.beacon_id)
        .join(campaign_tag, campaign_tag.c.campaign_id == every.c.id)
        .join(beacon_tag, beacon_tag.c.tag_id == campaign_tag.c.tag_id)
        .where(every.c.id.in_(campaigns))
    )
    return or_(Beacon.id.in_(named), tuple_(Beacon.venue_id, Beacon.id).in_(tagged))


async def beacon_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The ids and the entries of the beacons that meet the condition, in chunks."""
    last = 0
    query = select(Beacon, Venue).join(Venue, Beacon.venue_id == Venue.id)
    query = query.where(condition).order_by(Beacon.id).limit(CHUNK)
    while rows := (await session.execute(query.where(Beacon.id > last))).all():
        last = rows[-1].Beacon.id
        venues = {beacon.id: venue.id for beacon, venue in rows}
        campaigns = await campaigns_at(session, venues)
        entries = (_beacon_entry(*row, campaigns[row.Beacon.id]) for row in rows)
        yield list(venues), {_field_of(entry.place): encode(entry) for entry in entries}


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


def _beacon_entry(
    beacon: Beacon, venue: Venue, campaigns: Iterable[int]
) -> PlaceEntry[BeaconSnapshot]:
    snapshot = BeaconSnapshot(
        id=beacon.id,
        name=beacon.name,
        uuid=beacon.uuid,
        major=beacon.major,
        minor=beacon.minor,
        active=beacon.active,
        reach=Zone[beacon.proximity.upper()],
        venue=_venue_snapshot(venue),
    )
    return PlaceEntry(place=snapshot, campaigns=sorted(campaigns))


def _field_of(beacon: BeaconSnapshot) -> str:
    return beacon_field(beacon.uuid, beacon.major, beacon.minor)


def _venue_snapshot(venue: Venue) -> VenueSnapshot:
    return VenueSnapshot(
        id=venue.id,
        name=venue.name,
        company_id=venue.company_id,
        active=venue.active,
        time_zone=venue.time_zone,
    )


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
        end=row.end_at,
        now=now,
    ):
        campaign = campaign.without_content()
    return campaign_field(row.id), encode(campaign)


async def campaigns_at(
    session: AsyncSession, venues: Mapping[int, int], condition: ColumnElement[bool] = _EVERY
) -> dict[int, set[int]]:
    """The ids of the campaigns, among those of the condition, that target each of some beacons.

    `venues` has the venue of each beacon. Tags are joined here and not in SQL, which would return
    each campaign once for every beacon that shares a tag with it.
    """
    named = select(campaign_beacon.c.beacon_id, Campaign.id).join(Campaign)
    named = named.where(campaign_beacon.c.beacon_id.in_(venues), condition)
    carried = select(beacon_tag.c.beacon_id, beacon_tag.c.tag_id)
    carried = carried.where(beacon_tag.c.beacon_id.in_(venues))
    wanted = select(Campaign.venue_id, campaign_tag.c.tag_id, Campaign.id).join(campaign_tag)
    wanted = wanted.where(Campaign.venue_id.in_(set(venues.values())), condition)
    by_tag: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for venue_id, tag_id, campaign_id in await session.execute(wanted):
        by_tag[venue_id, tag_id].add(campaign_id)
    found: dict[int, set[int]] = {beacon_id: set() for beacon_id in venues}
    for beacon_id, campaign_id in await session.execute(named):
        found[beacon_id].add(campaign_id)
    for beacon_id, tag_id in await session.execute(carried):
        found[beacon_id] |= by_tag[venues[beacon_id], tag_id]
    return found


class CampaignAtBeacon(NamedTuple):
    """A campaign and the beacon that the question is about; None if it targets no beacon.

    `target` has the campaign only if the campaign is aimed at the beacon.
    """

    campaign: CampaignSnapshot
    beacon: BeaconSnapshot | None
    target: Target


async def read_campaign_at_beacon(
    session: AsyncSession, company_id: int, venue_id: int, campaign_id: int, beacon_id: int | None
) -> CampaignAtBeacon | None:
    """A campaign of a company's venue at a beacon of the company; None without the campaign.

    Without `beacon_id` it is the first active beacon that the campaign targets.
    """
    wanted = and_(
        Campaign.id == campaign_id, Campaign.venue_id == venue_id, Venue.company_id == company_id
    )
    campaign = None
    async for _, fields in campaign_fields(session, wanted):
        (campaign,) = (awake_campaign(decode_campaign(value)) for value in fields.values())
    if campaign is None:
        return None
    if beacon_id is None:
        first = select(Beacon.id).where(targeted_by([campaign_id]))
        beacon_id = await session.scalar(first.order_by(Beacon.active.desc(), Beacon.id).limit(1))
    connected = exists().where(Connector.company_id == company_id)
    has_connector = bool(await session.scalar(select(connected)))
    async for _, fields in beacon_fields(session, Beacon.id == beacon_id):
        (entry,) = map(decode_beacon, fields.values())
        aimed = [campaign] if campaign_id in entry.campaigns else []
        target = Target.of_place(entry.place, aimed, has_connector)
        return CampaignAtBeacon(campaign, entry.place, target)
    venue = _venue_snapshot(await session.get_one(Venue, venue_id))
    return CampaignAtBeacon(campaign, None, Target(venue, True, None, (), has_connector))
