"""Reads index entries from SQL in chunks: a few statements a chunk, whatever the catalog's size.

Redis holds the index of all companies in memory. So a campaign that is inactive, at an inactive
venue or long over is written to the index with its schedule alone: the decision and its reason stay
the same, and no content is needed. Detections may arrive late, hence the margin.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Table, and_, exists, or_, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import sql_now
from catalog.index.entries import (
    ApplicationEntry,
    CompanyGeofences,
    ConnectorEntry,
    PlaceEntry,
    application_field,
    beacon_field,
    campaign_field,
    connector_field,
    decode_campaign,
    decode_place,
    decode_rules,
    encode,
    geofence_field,
    geofences_field,
    rules_field,
    tag_field,
)
from catalog.models import (
    WEEKDAYS,
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Geofence,
    ScanTag,
    Venue,
    at_offset,
    beacon_tag,
    campaign_beacon,
    campaign_geofence,
    campaign_scan_tag,
    campaign_tag,
    geofence_tag,
    scan_tag_tag,
)
from rules.decision import Target
from rules.explanation import awake_campaign
from rules.geofences import Circle
from rules.model import (
    BeaconSnapshot,
    CampaignSnapshot,
    Cap,
    CompanyRules,
    GeofenceSnapshot,
    Place,
    QuietHours,
    TagSnapshot,
    VenueSnapshot,
    Zone,
)
from rules.parsing import parse_delay

Fields = dict[str, bytes]
Chunks = AsyncIterator[tuple[list[int], Fields]]

CHUNK = 1000
_CAMPAIGNS = 100  # each may carry tens of kilobytes, and a chunk is one call to Redis
_COMPANIES = 10  # each may have ten thousand geofences
_EVERY = true()
AFTER_END = timedelta(days=10)  # longer than MAX_DETECTION_AGE, an offset and a whole day


class PlaceTable(NamedTuple):
    """The table of one kind of place, its links to tags, and those to campaigns that name it."""

    model: Any  # the class Beacon, Geofence or ScanTag
    tags: Table
    campaigns: Table

    def of(self, links: Table) -> Column[int]:
        """The place's column in a table of links."""
        return links.c[f"{self.model.__tablename__}_id"]


BEACONS = PlaceTable(Beacon, beacon_tag, campaign_beacon)
GEOFENCES = PlaceTable(Geofence, geofence_tag, campaign_geofence)
SCAN_TAGS = PlaceTable(ScanTag, scan_tag_tag, campaign_scan_tag)
PLACES = (BEACONS, GEOFENCES, SCAN_TAGS)


def may_fire(*, active: bool, venue_active: bool, end: datetime, now: datetime) -> bool:
    """Whether a campaign's entry needs its content from `now` on."""
    return active and venue_active and now <= end + AFTER_END


def targeted_by(campaigns: Collection[int], places: PlaceTable = BEACONS) -> ColumnElement[bool]:
    """Places that one of the campaigns, deleted ones too, names or reaches by a tag."""
    model, links, tags = places.model, places.campaigns, places.tags
    named = select(places.of(links)).where(links.c.campaign_id.in_(campaigns))
    every = Campaign.__table__  # without the criteria of sessions
    tagged = (
        select(every.c.venue_id, places.of(tags))
        .join(campaign_tag, campaign_tag.c.campaign_id == every.c.id)
        .join(tags, tags.c.tag_id == campaign_tag.c.tag_id)
        .where(every.c.id.in_(campaigns))
    )
    return or_(model.id.in_(named), tuple_(model.venue_id, model.id).in_(tagged))


async def place_fields(
    places: PlaceTable, session: AsyncSession, condition: ColumnElement[bool] = _EVERY
) -> Chunks:
    """The ids and the entries of the places that meet the condition, in chunks."""
    last = 0
    model = places.model
    query = select(model, Venue).join(Venue, model.venue_id == Venue.id)
    query = query.where(condition).order_by(model.id).limit(CHUNK)
    while rows := (await session.execute(query.where(model.id > last))).all():
        last = rows[-1][0].id
        venues = {place.id: venue.id for place, venue in rows}
        campaigns = await campaigns_at(session, venues, places=places)
        fields: Fields = {}
        for place, venue in rows:
            snapshot = _snapshot(place, venue_snapshot(venue))
            entry = PlaceEntry(place=snapshot, campaigns=sorted(campaigns[place.id]))
            fields[place_field(snapshot)] = encode(entry)
        yield list(venues), fields


beacon_fields = partial(place_fields, BEACONS)
geofence_fields = partial(place_fields, GEOFENCES)
scan_tag_fields = partial(place_fields, SCAN_TAGS)


async def circle_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The ids of companies that have geofences, and the circles of each, in chunks.

    The condition is one of venues.
    """
    last = 0
    owners = select(Venue.company_id).join(Geofence, Geofence.venue_id == Venue.id).distinct()
    owners = owners.where(condition).order_by(Venue.company_id).limit(_COMPANIES)
    columns = (Geofence.id, Geofence.latitude, Geofence.longitude, Geofence.radius)
    query = select(Venue.company_id, *columns).join(Venue, Geofence.venue_id == Venue.id)
    while ids := (await session.scalars(owners.where(Venue.company_id > last))).all():
        last = ids[-1]
        found = query.where(Venue.company_id.in_(ids)).order_by(Geofence.id)
        circles: defaultdict[int, list[Circle]] = defaultdict(list)
        for company_id, id_, *circle in await session.execute(found):
            circles[company_id].append(Circle(id_, *circle))
        yield (
            list(ids),
            {geofences_field(id_): encode(CompanyGeofences(each)) for id_, each in circles.items()},
        )


async def application_fields(
    session: AsyncSession, condition: ColumnElement[bool] = _EVERY
) -> Chunks:
    """The ids and the entries of the applications that meet the condition, in chunks."""
    last = 0
    query = select(Application).where(condition).order_by(Application.id).limit(CHUNK)
    while rows := (await session.scalars(query.where(Application.id > last))).all():
        last = rows[-1].id
        fields: Fields = {}
        for row in rows:
            end = None if row.expire_on is None else row.expire_on.timestamp()
            entry = ApplicationEntry(
                id=row.id, company_id=row.company_id, active=row.active, expires_at=end
            )
            fields[application_field(row.api_key)] = encode(entry)
        yield [row.id for row in rows], fields


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


async def rules_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The ids and the rules of the companies that meet the condition and set any, in chunks."""
    last = 0
    on_visits = exists().where(
        Campaign.venue_id == Venue.id,
        Venue.company_id == Company.id,
        Campaign.on != "detection",
        *(model.deleted_at.is_(None) for model in (Campaign, Venue)),
    )
    query = select(Company, on_visits).where(condition).order_by(Company.id).limit(CHUNK)
    while rows := (await session.execute(query.where(Company.id > last))).all():
        last = rows[-1][0].id
        found = [_company_rules(company, on_visits=visits) for company, visits in rows]
        found = [each for each in found if each != CompanyRules(company_id=each.company_id)]
        puts = {rules_field(each.company_id): encode(each) for each in found}
        yield [each.company_id for each in found], puts


def _company_rules(company: Company, *, on_visits: bool) -> CompanyRules:
    quiet = company.quiet_hours
    return CompanyRules(
        company_id=company.id,
        caps=tuple(Cap(cap["max"], parse_delay(cap["per"])) for cap in company.caps),
        quiet_hours=None if quiet is None else _quiet_hours(**quiet),
        time_zone=company.time_zone,
        presence=company.presence,
        visit_silence=company.visit_silence,
        tracks_visits=company.presence or on_visits,
    )


def _quiet_hours(start: str, end: str, weekdays: Iterable[str] = WEEKDAYS) -> QuietHours:
    first, last = (int(text[:2]) * 60 + int(text[3:]) for text in (start, end))
    return QuietHours(first, last, sum(1 << WEEKDAYS.index(day) for day in weekdays))


def _snapshot(place: Any, venue: VenueSnapshot) -> Place:
    common: dict[str, Any] = {
        "id": place.id,
        "name": place.name,
        "active": place.active,
        "venue": venue,
    }
    if isinstance(place, Beacon):
        triple: dict[str, Any] = {name: getattr(place, name) for name in ("uuid", "major", "minor")}
        return BeaconSnapshot(reach=Zone[place.proximity.upper()], **triple, **common)
    if isinstance(place, Geofence):
        circle = {name: getattr(place, name) for name in ("latitude", "longitude", "radius")}
        return GeofenceSnapshot(**circle, **common)
    return TagSnapshot(kind=place.kind, value=place.value, **common)


def place_field(place: Place) -> str:
    """The field of a place's entry."""
    if isinstance(place, BeaconSnapshot):
        return beacon_field(place.uuid, place.major, place.minor)
    if isinstance(place, GeofenceSnapshot):
        return geofence_field(place.id)
    return tag_field(place.venue.company_id, place.kind, place.value)


def venue_snapshot(venue: Venue) -> VenueSnapshot:
    return VenueSnapshot(
        id=venue.id,
        name=venue.name,
        company_id=venue.company_id,
        active=venue.active,
        time_zone=venue.time_zone,
        visit_silence=venue.visit_silence,
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
        on=row.on,
        dwell_minutes=row.dwell_minutes,
        priority=row.priority,
        ignores_caps=row.ignores_caps,
        ignores_quiet_hours=row.ignores_quiet_hours,
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
    session: AsyncSession,
    venues: Mapping[int, int],
    condition: ColumnElement[bool] = _EVERY,
    places: PlaceTable = BEACONS,
) -> dict[int, set[int]]:
    """The ids of the campaigns, among those of the condition, that target each of some places.

    `venues` has the venue of each place. Tags are joined here and not in SQL, which would return
    each campaign once for every place that shares a tag with it.
    """
    links, tags = places.campaigns, places.tags
    named = select(places.of(links), Campaign.id).join(Campaign)
    named = named.where(places.of(links).in_(venues), condition)
    carried = select(places.of(tags), tags.c.tag_id).where(places.of(tags).in_(venues))
    wanted = select(Campaign.venue_id, campaign_tag.c.tag_id, Campaign.id).join(campaign_tag)
    wanted = wanted.where(Campaign.venue_id.in_(set(venues.values())), condition)
    by_tag: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for venue_id, tag_id, campaign_id in await session.execute(wanted):
        by_tag[venue_id, tag_id].add(campaign_id)
    found: dict[int, set[int]] = {place_id: set() for place_id in venues}
    for place_id, campaign_id in await session.execute(named):
        found[place_id].add(campaign_id)
    for place_id, tag_id in await session.execute(carried):
        found[place_id] |= by_tag[venues[place_id], tag_id]
    return found


class CampaignAtPlace(NamedTuple):
    """A campaign and the place that the question is about; None if it targets none.

    `target` has the campaign only if the campaign is aimed at the place.
    """

    campaign: CampaignSnapshot
    place: Place | None
    target: Target


async def read_campaign_at_place(
    session: AsyncSession,
    company_id: int,
    venue_id: int,
    campaign_id: int,
    place: tuple[PlaceTable, int] | None,
) -> CampaignAtPlace | None:
    """A campaign of a company's venue at a place (its table and id) of the company.

    None without the campaign. Without `place` it is the first that the campaign targets: active
    ones first, then beacons, geofences, tags.
    """
    wanted = and_(
        Campaign.id == campaign_id, Campaign.venue_id == venue_id, Venue.company_id == company_id
    )
    campaign = None
    async for _, fields in campaign_fields(session, wanted):
        (campaign,) = (awake_campaign(decode_campaign(value)) for value in fields.values())
    if campaign is None:
        return None
    place = place or await _first_target(session, campaign_id)
    connected = exists().where(Connector.company_id == company_id)
    has_connector = bool(await session.scalar(select(connected)))
    rules = None
    async for _, fields in rules_fields(session, Company.id == company_id):
        rules = next(map(decode_rules, fields.values()), None)
    if place is not None:
        table, number = place
        async for _, fields in place_fields(table, session, table.model.id == number):
            (entry,) = map(decode_place, fields.values())
            aimed = [campaign] if campaign_id in entry.campaigns else []
            target = Target.of_place(entry.place, aimed, has_connector, rules)
            return CampaignAtPlace(campaign, entry.place, target)
    venue = venue_snapshot(await session.get_one(Venue, venue_id))
    return CampaignAtPlace(campaign, None, Target(venue, True, None, (), has_connector))


async def _first_target(session: AsyncSession, campaign_id: int) -> tuple[PlaceTable, int] | None:
    inactive = None
    for table in PLACES:
        model = table.model
        targets = select(model.id, model.active).where(targeted_by([campaign_id], table))
        first = targets.order_by(model.active.desc(), model.id).limit(1)
        for row in await session.execute(first):
            if row.active:
                return table, row.id
            inactive = inactive or (table, row.id)
    return inactive
