"""How many campaigns are open at a beacon at once: what the trigger looks at for each detection.

A campaign is open at a beacon from its start to its end while it is active and names the beacon,
or one of the beacon's tags at the beacon's venue. Weekdays and hours do not matter, nor whether
beacon and venue are active: those change every day, and nothing is to pass the limit by itself.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.chunks import chunked
from catalog.limits import CatalogLimits, LimitError
from catalog.models import (
    Beacon,
    Campaign,
    Tag,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_tag,
)
from catalog.models.base import at_offset

_CHUNK = 1000
_DAY = timedelta(days=1)


class Span(NamedTuple):
    """From an instant to another, both included."""

    start: datetime
    end: datetime


class Reach(NamedTuple):
    """When a campaign is open, and what it names."""

    active: bool
    span: Span
    targets: frozenset[Beacon | Tag]

    def goes_beyond(self, before: "Reach | None") -> bool:
        """Whether it is open at a beacon or an instant at which it was not."""
        if not self.active or before is None or not before.active:
            return self.active
        longer = self.span.start < before.span.start or self.span.end > before.span.end
        return longer or not self.targets <= before.targets


class Excess(NamedTuple):
    """While too many are open at once: from when to when, and how many at most."""

    span: Span
    peak: int


class Crowd(NamedTuple):
    """A beacon at which too many campaigns are open at once; `campaigns` are all that reach it."""

    name: str
    beacon_id: int
    campaigns: frozenset[int]
    excesses: list[Excess]

    def peak(self, within: Span | None = None) -> int:
        """The most that are open at once while too many are, 0 if they never are `within`."""
        return max((e.peak for e in self.excesses if _overlap(e.span, within)), default=0)


def reach_of(campaign: Campaign) -> Reach:
    """The reach of a campaign whose ties are loaded."""
    return Reach(campaign.active, span_of(campaign), frozenset([*campaign.beacons, *campaign.tags]))


def span_of(campaign: Campaign) -> Span:
    """From its start to its end; an end at midnight is that of the day."""
    return _span(campaign.start_at, campaign.end_at, campaign.end_offset)


async def check_campaign(
    session: AsyncSession, limits: CatalogLimits, company_id: int, campaign: Campaign, now: datetime
) -> None:
    """Raise LimitError if a campaign that was written makes one too many at a beacon."""
    tied = campaign_tag.c.campaign_id == campaign.id
    carried = select(beacon_tag.c.beacon_id).where(
        beacon_tag.c.tag_id.in_(select(campaign_tag.c.tag_id).where(tied))
    )
    named = select(campaign_beacon.c.beacon_id).where(campaign_beacon.c.campaign_id == campaign.id)
    reached = or_(
        Beacon.id.in_(named), and_(Beacon.venue_id == campaign.venue_id, Beacon.id.in_(carried))
    )
    span = span_of(campaign)
    async for crowd in crowds(session, limits, company_id, now, reached):
        if peak := crowd.peak(span):
            raise LimitError("active", crowd_message(limits, crowd, peak))


async def check_beacon(
    session: AsyncSession, limits: CatalogLimits, company_id: int, beacon: Beacon, now: datetime
) -> None:
    """Raise LimitError if a beacon that was written has too many, for the tags it carries."""
    async for crowd in crowds(session, limits, company_id, now, Beacon.id == beacon.id):
        raise LimitError("tags", crowd_message(limits, crowd, crowd.peak()))


def crowd_message(limits: CatalogLimits, crowd: Crowd, peak: int) -> str:
    """What is wrong, and what is accepted."""
    return (
        f"accepted: at most {limits.beacon_open_campaigns} campaigns open at a beacon at once; "
        f"the beacon {crowd.name!r} would have {peak}"
    )


async def crowds(
    session: AsyncSession,
    limits: CatalogLimits,
    company_id: int,
    now: datetime,
    which: ColumnElement[bool],
) -> AsyncIterator[Crowd]:
    """The beacons of a company among `which` that have too many campaigns open at once.

    One query where the company has few campaigns; else a few for each thousand beacons. What a
    beacon carries and what names it is put together here, as catalog.index.build does.
    """
    most = limits.beacon_open_campaigns
    own = Venue.company_id == company_id
    # A day, for an end at midnight that means the whole day.
    still = and_(Campaign.active, Campaign.end_at >= now - _DAY)
    of_company = select(func.count(Campaign.id)).join(Campaign.venue).where(own, still)
    if (await session.scalar(of_company) or 0) <= most:
        return
    beacons = select(Beacon.id, Beacon.name, Beacon.venue_id).join(Beacon.venue)
    beacons = beacons.where(own, which).order_by(Beacon.id).limit(_CHUNK)
    targets = _Targets(session, still)
    known: dict[frozenset[int], list[Excess]] = {}
    last = 0
    while rows := (await session.execute(beacons.where(Beacon.id > last))).all():
        last = rows[-1].id
        campaigns = await targets.of({row.id: row.venue_id for row in rows})
        for row in rows:
            together = campaigns[row.id]
            if together not in known:
                known[together] = await _excesses(session, together, most, now)
            if known[together]:
                yield Crowd(row.name, row.id, together, known[together])


def excesses(spans: Iterable[Span], most: int) -> list[Excess]:
    """When more than `most` of the spans have an instant in common, in order."""
    edges = sorted(edge for span in spans for edge in ((span.start, 0), (span.end, 1)))
    found: list[Excess] = []
    since, peak, open_now = None, 0, 0
    for at, closes in edges:
        if closes:
            if since is not None and open_now == most + 1:
                found.append(Excess(Span(since, at), peak))
                since = None
            open_now -= 1
            continue
        open_now += 1
        if open_now > most:
            since, peak = (at, open_now) if since is None else (since, max(peak, open_now))
    return found


def _overlap(one: Span, other: Span | None) -> bool:
    return other is None or (one.start <= other.end and one.end >= other.start)


class _Targets:
    """Which campaigns reach beacons. Beacons that carry the same tags share one set."""

    def __init__(self, session: AsyncSession, still: ColumnElement[bool]) -> None:
        self._session = session
        self._still = still
        self._by_tag: dict[int, defaultdict[int, set[int]]] = {}  # by venue, then by tag
        self._by_tags: dict[tuple[int, frozenset[int]], frozenset[int]] = {}

    async def of(self, venues: dict[int, int]) -> dict[int, frozenset[int]]:
        """The campaigns of beacons, for beacon ids with their venues' ids."""
        named = select(campaign_beacon.c.beacon_id, Campaign.id).join(
            Campaign, Campaign.id == campaign_beacon.c.campaign_id
        )
        named = named.where(campaign_beacon.c.beacon_id.in_(venues), self._still)
        carried = select(beacon_tag.c.beacon_id, beacon_tag.c.tag_id)
        direct = await self._grouped(named)
        tags = await self._grouped(carried.where(beacon_tag.c.beacon_id.in_(venues)))
        await self._learn({venues[beacon_id] for beacon_id in tags} - self._by_tag.keys())
        found = {}
        for beacon_id, venue_id in venues.items():
            by_tags = self._carrying(venue_id, frozenset(tags[beacon_id]))
            found[beacon_id] = by_tags | direct[beacon_id] if beacon_id in direct else by_tags
        return found

    async def _learn(self, venue_ids: Collection[int]) -> None:
        self._by_tag.update((number, defaultdict(set)) for number in venue_ids)
        query = select(Campaign.venue_id, campaign_tag.c.tag_id, Campaign.id)
        query = query.join(campaign_tag, campaign_tag.c.campaign_id == Campaign.id)
        query = query.where(Campaign.venue_id.in_(venue_ids), self._still)
        for venue_id, tag_id, campaign_id in await self._session.execute(query):
            self._by_tag[venue_id][tag_id].add(campaign_id)

    def _carrying(self, venue_id: int, tags: frozenset[int]) -> frozenset[int]:
        key = (venue_id, tags)
        if key not in self._by_tags:
            sets = (self._by_tag[venue_id][tag] for tag in tags)
            self._by_tags[key] = frozenset().union(*sets)
        return self._by_tags[key]

    async def _grouped(self, pairs: Select[int, int]) -> defaultdict[int, set[int]]:
        found: defaultdict[int, set[int]] = defaultdict(set)
        for key, value in await self._session.execute(pairs):
            found[key].add(value)
        return found


async def _excesses(
    session: AsyncSession, ids: Collection[int], most: int, now: datetime
) -> list[Excess]:
    if len(ids) <= most:
        return []
    spans: list[Span] = []
    query = select(Campaign.id, Campaign.start_at, Campaign.end_at, Campaign.end_offset)
    for chunk in chunked(sorted(ids), _CHUNK):
        rows = await session.execute(query.where(Campaign.id.in_(chunk)))
        spans += (_span(row.start_at, row.end_at, row.end_offset) for row in rows)
    return excesses((span for span in spans if span.start <= span.end and span.end >= now), most)


def _span(start: datetime, end: datetime, end_offset: int) -> Span:
    written: Any = at_offset(end, end_offset)
    if (written.hour, written.minute, written.second) == (0, 0, 0):
        try:
            end += _DAY - timedelta(seconds=1)
        except OverflowError:
            end = datetime.max.replace(tzinfo=UTC)
    return Span(start, end)
