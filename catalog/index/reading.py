"""Reads index entries from SQL in chunks: a few statements a chunk, whatever the catalog's size."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Column, ColumnElement, Select, Table, and_, exists, or_, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.index import entries
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

S = TypeVar("S", bound=msgspec.Struct)
Fields = dict[str, bytes]
Chunks = AsyncIterator[Fields]

CHUNK = 1000
_CAMPAIGNS = 100  # each may carry tens of kilobytes, and a chunk is one call to Redis
_COMPANIES = 10  # each may have ten thousand geofences
_EVERY = true()


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


async def pages(
    session: AsyncSession, query: Select[*tuple[Any, ...]], key: Any, size: int = CHUNK
) -> AsyncIterator[Sequence[Any]]:
    """The rows of a query in the order of `key`, in lists. Each row has `page_key` last."""
    query = query.add_columns(key.label("page_key")).order_by(key).limit(size)
    last = 0
    while rows := (await session.execute(query.where(key > last))).all():
        last = rows[-1].page_key
        yield rows


async def place_fields(
    places: PlaceTable, session: AsyncSession, condition: ColumnElement[bool] = _EVERY
) -> Chunks:
    """The entries of the places that meet the condition, in chunks."""
    model = places.model
    query = select(model, Venue).join(Venue, model.venue_id == Venue.id).where(condition)
    async for rows in pages(session, query, model.id):
        venues = {place.id: venue.id for place, venue, _ in rows}
        campaigns = await campaigns_at(session, venues, places=places)
        fields: Fields = {}
        for place, venue, number in rows:
            field, snapshot = _described(place, copied(VenueSnapshot, venue))
            entry = entries.PlaceEntry(place=snapshot, campaigns=sorted(campaigns[number]))
            fields[field] = entries.encode(entry)
        yield fields


async def circle_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The circles of the companies that have geofences, in chunks; the condition is of venues."""
    owners = select(Venue.company_id).join(Geofence, Geofence.venue_id == Venue.id).distinct()
    columns = (Geofence.id, Geofence.latitude, Geofence.longitude, Geofence.radius)
    query = select(Venue.company_id, *columns).join(Venue, Geofence.venue_id == Venue.id)
    async for rows in pages(session, owners.where(condition), Venue.company_id, _COMPANIES):
        ids = [row.page_key for row in rows]
        found = query.where(Venue.company_id.in_(ids)).order_by(Geofence.id)
        circles: defaultdict[int, list[Circle]] = defaultdict(list)
        for company_id, id_, *circle in await session.execute(found):
            circles[company_id].append(Circle(id_, *circle))
        yield {
            entries.geofences_field(id_): entries.encode(entries.CompanyGeofences(each))
            for id_, each in circles.items()
        }


async def application_fields(
    session: AsyncSession, condition: ColumnElement[bool] = _EVERY
) -> Chunks:
    """The entries of the applications that meet the condition, in chunks."""
    async for rows in pages(session, select(Application).where(condition), Application.id):
        fields: Fields = {}
        for application, _ in rows:
            end = application.expire_on and application.expire_on.timestamp()
            entry = copied(entries.ApplicationEntry, application, expires_at=end)
            fields[entries.application_field(application.api_key)] = entries.encode(entry)
        yield fields


async def campaign_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The entries of the campaigns that meet the condition, in chunks."""
    query = select(*Campaign.__table__.columns, Venue.time_zone)
    query = query.join(Venue, Campaign.venue_id == Venue.id).where(condition)
    async for rows in pages(session, query, Campaign.id, _CAMPAIGNS):
        yield dict(map(_campaign_field, rows))


async def connector_fields(
    session: AsyncSession, condition: ColumnElement[bool] = _EVERY
) -> Chunks:
    """The entries of the connectors that meet the condition, in chunks."""
    async for rows in pages(session, select(Connector).where(condition), Connector.id):
        found = (copied(entries.ConnectorEntry, connector) for connector, _ in rows)
        yield {entries.connector_field(entry.company_id): entries.encode(entry) for entry in found}


async def rules_fields(session: AsyncSession, condition: ColumnElement[bool] = _EVERY) -> Chunks:
    """The rules of the companies that meet the condition and set any, in chunks."""
    on_visits = exists().where(
        Campaign.venue_id == Venue.id,
        Venue.company_id == Company.id,
        Campaign.on != "detection",
        *(model.deleted_at.is_(None) for model in (Campaign, Venue)),
    )
    query = select(Company, on_visits).where(condition)
    async for rows in pages(session, query, Company.id):
        found = [_company_rules(company, on_visits=visits) for company, visits, _ in rows]
        found = [each for each in found if each != CompanyRules(company_id=each.company_id)]
        yield {entries.rules_field(each.company_id): entries.encode(each) for each in found}


# Every kind of entry. Campaigns come before the places that name them.
READERS: dict[str, Callable[..., Chunks]] = {
    "connectors": connector_fields,
    "campaigns": campaign_fields,
    "beacons": partial(place_fields, BEACONS),
    "geofences": partial(place_fields, GEOFENCES),
    "tags": partial(place_fields, SCAN_TAGS),
    "applications": application_fields,
    "circles": circle_fields,
    "rules": rules_fields,
}


def copied(struct: type[S], record: Any, **other: Any) -> S:
    """A struct with the record's attributes of the same names, and others that are given."""
    names = struct.__struct_fields__
    return struct(**{name: getattr(record, name) for name in names if name not in other}, **other)


def _company_rules(company: Company, *, on_visits: bool) -> CompanyRules:
    quiet = company.quiet_hours
    return copied(
        CompanyRules,
        company,
        company_id=company.id,
        caps=tuple(Cap(cap["max"], parse_delay(cap["per"])) for cap in company.caps),
        quiet_hours=None if quiet is None else _quiet_hours(**quiet),
        tracks_visits=company.presence or on_visits,
    )


def _quiet_hours(start: str, end: str, weekdays: Iterable[str] = WEEKDAYS) -> QuietHours:
    first, last = (int(text[:2]) * 60 + int(text[3:]) for text in (start, end))
    return QuietHours(first, last, sum(1 << WEEKDAYS.index(day) for day in weekdays))


def _described(place: Any, venue: VenueSnapshot) -> tuple[str, Place]:
    """The field of a place's entry, and the place as it stands there."""
    if isinstance(place, Beacon):
        reach = Zone[place.proximity.upper()]
        snapshot = copied(BeaconSnapshot, place, venue=venue, reach=reach)
        return entries.beacon_field(place.uuid, place.major, place.minor), snapshot
    if isinstance(place, Geofence):
        return entries.geofence_field(place.id), copied(GeofenceSnapshot, place, venue=venue)
    field = entries.tag_field(venue.company_id, place.kind, place.value)
    return field, copied(TagSnapshot, place, venue=venue)


def _campaign_field(row: Any) -> tuple[str, bytes]:
    campaign = copied(
        CampaignSnapshot,
        row,
        content=None if row.format == "connector" else getattr(row, row.format),
        start=at_offset(row.start_at, row.start_offset),
        end=at_offset(row.end_at, row.end_offset),
    )
    return entries.campaign_field(row.id), entries.encode(campaign)


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


async def read_campaign_at_place(
    session: AsyncSession,
    company_id: int,
    venue_id: int,
    campaign_id: int,
    place: tuple[PlaceTable, int] | None,
) -> tuple[CampaignSnapshot, Place | None, Target] | None:
    """A campaign of a company's venue, a place (given as its table and id) of the company, and its
    target, which has the campaign only if it is aimed at the place.

    None without the campaign. Without `place` it is the first that the campaign targets: active
    ones first, then beacons, geofences, tags; None if there is none.
    """
    wanted = and_(
        Campaign.id == campaign_id, Campaign.venue_id == venue_id, Venue.company_id == company_id
    )
    campaign = None
    async for fields in campaign_fields(session, wanted):
        (campaign,) = map(entries.decode_campaign, fields.values())
    if campaign is None:
        return None
    place = place or await _first_target(session, campaign_id)
    connected = exists().where(Connector.company_id == company_id)
    has_connector = bool(await session.scalar(select(connected)))
    rules = None
    async for fields in rules_fields(session, Company.id == company_id):
        rules = next(map(entries.decode_rules, fields.values()), None)
    if place is not None:
        table, number = place
        async for fields in place_fields(table, session, table.model.id == number):
            (entry,) = map(entries.decode_place, fields.values())
            aimed = [campaign] if campaign_id in entry.campaigns else []
            target = Target(entry.place, aimed, has_connector, rules)
            return campaign, entry.place, target
    venue = copied(VenueSnapshot, await session.get_one(Venue, venue_id))
    nowhere = GeofenceSnapshot(
        id=0, name="", active=True, latitude=0.0, longitude=0.0, radius=0.0, venue=venue
    )
    return campaign, None, Target(nowhere, (), has_connector)


async def _first_target(session: AsyncSession, campaign_id: int) -> tuple[PlaceTable, int] | None:
    found = []
    for table in PLACES:
        model = table.model
        targets = select(model.id, model.active).where(targeted_by([campaign_id], table))
        first = targets.order_by(model.active.desc(), model.id).limit(1)
        found += [(not row.active, table, row.id) for row in await session.execute(first)]
    return min(found, key=itemgetter(0))[1:] if found else None
