"""Reads index entries from SQL in chunks: a few statements a chunk, whatever the catalog's size.

Redis holds the index of all companies in memory. So a campaign that is inactive, at an inactive
venue or far from its dates is in the index with its schedule alone: the decision and its reason
stay the same, and no content is needed. The margins are wide. The content is in the index long
before the start, because SQL may be down for days, and long after the end, because detections may
arrive late.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Select, and_, exists, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.chunks import chunked
from catalog.database import sql_now
from catalog.index.entries import (
    BeaconEntry,
    ConnectorEntry,
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
BEFORE_START = timedelta(days=10)
AFTER_END = timedelta(days=10)  # longer than MAX_DETECTION_AGE, an offset and a whole day


def may_fire(
    *, active: bool, venue_active: bool, start: datetime, end: datetime, now: datetime
) -> bool:
    """Whether a campaign's entry needs its content at `now`."""
    return active and venue_active and now >= start - BEFORE_START and now <= end + AFTER_END


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


class CampaignTargets:
    """Finds the campaigns of beacons, and caches the campaigns of tags.

    `condition` restricts the campaigns. Tags are joined here and not in SQL: if many beacons and
    many campaigns share a tag, SQL would return each campaign once for every beacon. Beacons of a
    venue that carry the same tags share one set.
    """

    def __init__(self, session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> None:
        self._session = session
        self._condition = condition
        self._by_tag: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self._by_tags: dict[tuple[int, frozenset[int]], frozenset[int]] = {}

    async def of(self, venues: Mapping[int, int]) -> dict[int, frozenset[int]]:
        """The ids of the campaigns of up to 1000 beacons; `venues` has the venue of each."""
        by_id = select(campaign_beacon.c.beacon_id, Campaign.id).join(
            Campaign, Campaign.id == campaign_beacon.c.campaign_id
        )
        by_id = by_id.where(campaign_beacon.c.beacon_id.in_(venues), self._condition)
        carried = select(beacon_tag.c.beacon_id, beacon_tag.c.tag_id)
        campaigns = await self._grouped(by_id)
        tags = await self._grouped(carried.where(beacon_tag.c.beacon_id.in_(venues)))
        await self._read_tags({(venues[beacon], tag) for beacon in tags for tag in tags[beacon]})
        found = {}
        for beacon_id, venue_id in venues.items():
            by_tags = self._carrying(venue_id, frozenset(tags[beacon_id]))
            listed = campaigns.get(beacon_id)
            found[beacon_id] = by_tags | listed if listed else by_tags
        return found

    async def _read_tags(self, wanted: set[tuple[int, int]]) -> None:
        """Cache the campaigns of (venue id, tag id) pairs."""
        unknown = sorted(wanted - self._by_tag.keys())
        query = select(Campaign.venue_id, campaign_tag.c.tag_id, Campaign.id)
        query = query.join(campaign_tag, campaign_tag.c.campaign_id == Campaign.id)
        query = query.where(Campaign.venue_id.in_({venue for venue, _ in unknown}))
        for tags in chunked(sorted({tag for _, tag in unknown}), CHUNK):
            rows = query.where(campaign_tag.c.tag_id.in_(tags), self._condition)
            for venue_id, tag_id, campaign_id in await self._session.execute(rows):
                self._by_tag[venue_id, tag_id].add(campaign_id)
        for pair in unknown:
            self._by_tag.setdefault(pair, set())  # no campaign of the venue targets this tag

    def _carrying(self, venue_id: int, tags: frozenset[int]) -> frozenset[int]:
        key = (venue_id, tags)
        if key not in self._by_tags:
            sets = (self._by_tag[venue_id, tag] for tag in tags)
            self._by_tags[key] = frozenset().union(*sets)
        return self._by_tags[key]

    async def _grouped(self, pairs: Select[int, int]) -> defaultdict[int, set[int]]:
        found: defaultdict[int, set[int]] = defaultdict(set)
        for key, value in await self._session.execute(pairs):
            found[key].add(value)
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
        beacon_id = await _first_target(session, venue_id, campaign_id)
    entry = None if beacon_id is None else await _entry(session, beacon_id)
    connected = exists().where(Connector.company_id == company_id)
    has_connector = bool(await session.scalar(select(connected)))
    if entry is None:
        venue = await _venue(session, venue_id)
        return CampaignAtBeacon(campaign, None, Target(venue, True, None, (), has_connector))
    aimed = [campaign] if campaign_id in entry.campaigns else []
    target = Target.of_beacon(entry.beacon, aimed, has_connector)
    return CampaignAtBeacon(campaign, entry.beacon, target)


async def _first_target(session: AsyncSession, venue_id: int, campaign_id: int) -> int | None:
    named = select(campaign_beacon.c.beacon_id).where(campaign_beacon.c.campaign_id == campaign_id)
    carrying = (
        select(beacon_tag.c.beacon_id)
        .join(campaign_tag, campaign_tag.c.tag_id == beacon_tag.c.tag_id)
        .where(campaign_tag.c.campaign_id == campaign_id)
    )
    by_tag = and_(Beacon.venue_id == venue_id, Beacon.id.in_(carrying))
    query = select(Beacon.id).where(or_(Beacon.id.in_(named), by_tag))
    return await session.scalar(query.order_by(Beacon.active.desc(), Beacon.id).limit(1))


async def _entry(session: AsyncSession, beacon_id: int) -> BeaconEntry | None:
    found = None
    async for _, fields in beacon_fields(session, Beacon.id == beacon_id):
        (found,) = map(decode_beacon, fields.values())
    return found


async def _venue(session: AsyncSession, venue_id: int) -> VenueSnapshot:
    venue = (await session.scalars(select(Venue).where(Venue.id == venue_id))).one()
    return VenueSnapshot(
        id=venue.id,
        name=venue.name,
        company_id=venue.company_id,
        active=venue.active,
        time_zone=venue.time_zone,
    )
