"""Limits how many campaigns are open at a beacon at once: each costs time at every detection.

A campaign is open at a beacon from its start to its end while it is active and names the beacon, or
names one of the beacon's tags at the beacon's venue. Weekdays, hours and the activity of beacon and
venue do not count: they change every day, and no such change may exceed the limit.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.chunks import chunked
from catalog.errors import LimitError
from catalog.limits import CatalogLimits
from catalog.models import Beacon, Campaign, Tag, Venue, beacon_tag, campaign_beacon, campaign_tag
from catalog.models.base import at_offset
from catalog.targets import CampaignTargets

_CHUNK = 1000
_DAY = timedelta(days=1)


class Period(NamedTuple):
    """From one instant to another, both included."""

    start: datetime
    end: datetime

    def overlaps(self, other: "Period") -> bool:
        """Whether the two have an instant in common."""
        return self.start <= other.end and self.end >= other.start


class CampaignScope(NamedTuple):
    """When and where a campaign is open: its period, and the beacons and tags that it targets."""

    active: bool
    period: Period
    targets: frozenset[Beacon | Tag]

    def goes_beyond(self, before: "CampaignScope | None") -> bool:
        """Whether it is open at a beacon or an instant at which it was not open `before`."""
        if not self.active or before is None or not before.active:
            return self.active
        longer = self.period.start < before.period.start or self.period.end > before.period.end
        return longer or not self.targets <= before.targets


class Excess(NamedTuple):
    """A period in which too many campaigns are open; `peak` is the most that are open at once."""

    period: Period
    peak: int


class CrowdedBeacon(NamedTuple):
    """A beacon at which too many campaigns are open at once; `campaigns` are all that target it."""

    name: str
    beacon_id: int
    campaigns: frozenset[int]
    excesses: list[Excess]

    def peak(self, within: Period | None = None) -> int:
        """The most campaigns that are open at once within the period; 0 if never too many."""
        found = (e.peak for e in self.excesses if within is None or e.period.overlaps(within))
        return max(found, default=0)


def scope_of(campaign: Campaign) -> CampaignScope:
    """The scope of a campaign whose beacons and tags are loaded."""
    targets: frozenset[Beacon | Tag] = frozenset([*campaign.beacons, *campaign.tags])
    return CampaignScope(campaign.active, open_period(campaign), targets)


def open_period(campaign: Campaign) -> Period:
    """A campaign's period from start to end. An end at midnight includes the following day."""
    return _period(campaign.start_at, campaign.end_at, campaign.end_offset)


async def check_campaign(
    session: AsyncSession, limits: CatalogLimits, company_id: int, campaign: Campaign, now: datetime
) -> None:
    """Raise LimitError if a campaign that was just written is one too many at a beacon."""
    own = campaign_tag.c.campaign_id == campaign.id
    carrying = select(beacon_tag.c.beacon_id).where(
        beacon_tag.c.tag_id.in_(select(campaign_tag.c.tag_id).where(own))
    )
    named = select(campaign_beacon.c.beacon_id).where(campaign_beacon.c.campaign_id == campaign.id)
    targeted = or_(
        Beacon.id.in_(named), and_(Beacon.venue_id == campaign.venue_id, Beacon.id.in_(carrying))
    )
    period = open_period(campaign)
    async for crowded in crowded_beacons(session, limits, company_id, now, targeted):
        if peak := crowded.peak(period):
            raise LimitError("active", crowded_message(limits, crowded, peak))


async def check_beacon(
    session: AsyncSession, limits: CatalogLimits, company_id: int, beacon: Beacon, now: datetime
) -> None:
    """Raise LimitError if a beacon that was just written has too many campaigns, by its tags."""
    async for crowded in crowded_beacons(session, limits, company_id, now, Beacon.id == beacon.id):
        raise LimitError("tags", crowded_message(limits, crowded, crowded.peak()))


def crowded_message(limits: CatalogLimits, crowded: CrowdedBeacon, peak: int) -> str:
    """The message of the fault, with the limit."""
    return (
        f"accepted: at most {limits.beacon_open_campaigns} campaigns open at a beacon at once; "
        f"the beacon {crowded.name!r} would have {peak}"
    )


async def crowded_beacons(
    session: AsyncSession,
    limits: CatalogLimits,
    company_id: int,
    now: datetime,
    which: ColumnElement[bool],
) -> AsyncIterator[CrowdedBeacon]:
    """The beacons of a company, among `which`, that have too many campaigns open at once.

    One query for a company with few campaigns; otherwise a few for every thousand beacons.
    """
    most = limits.beacon_open_campaigns
    own = Venue.company_id == company_id
    # A day more, because an end at midnight includes the day.
    current = and_(Campaign.active, Campaign.end_at >= now - _DAY)
    of_company = select(func.count(Campaign.id)).join(Campaign.venue).where(own, current)
    if (await session.scalar(of_company) or 0) <= most:
        return
    beacons = select(Beacon.id, Beacon.name, Beacon.venue_id).join(Beacon.venue)
    beacons = beacons.where(own, which).order_by(Beacon.id).limit(_CHUNK)
    targets = CampaignTargets(session, current)
    known: dict[frozenset[int], list[Excess]] = {}
    last = 0
    while rows := (await session.execute(beacons.where(Beacon.id > last))).all():
        last = rows[-1].id
        campaigns = await targets.of({row.id: row.venue_id for row in rows})
        for row in rows:
            ids = campaigns[row.id]
            if ids not in known:
                known[ids] = await _read_excesses(session, ids, most, now)
            if known[ids]:
                yield CrowdedBeacon(row.name, row.id, ids, known[ids])


def find_excesses(periods: Iterable[Period], most: int) -> list[Excess]:
    """The periods, in order, in which more than `most` of the given periods overlap."""
    edges = sorted(edge for period in periods for edge in ((period.start, 0), (period.end, 1)))
    found: list[Excess] = []
    since, peak, open_now = None, 0, 0
    for at, closes in edges:
        if closes:
            if since is not None and open_now == most + 1:
                found.append(Excess(Period(since, at), peak))
                since = None
            open_now -= 1
            continue
        open_now += 1
        if open_now > most:
            since, peak = (at, open_now) if since is None else (since, max(peak, open_now))
    return found


async def _read_excesses(
    session: AsyncSession, ids: Collection[int], most: int, now: datetime
) -> list[Excess]:
    if len(ids) <= most:
        return []
    periods: list[Period] = []
    query = select(Campaign.id, Campaign.start_at, Campaign.end_at, Campaign.end_offset)
    for chunk in chunked(sorted(ids), _CHUNK):
        rows = await session.execute(query.where(Campaign.id.in_(chunk)))
        periods += (_period(row.start_at, row.end_at, row.end_offset) for row in rows)
    return find_excesses((p for p in periods if p.start <= p.end and p.end >= now), most)


def _period(start: datetime, end: datetime, end_offset: int) -> Period:
    written: Any = at_offset(end, end_offset)
    if (written.hour, written.minute, written.second) == (0, 0, 0):
        try:
            end += _DAY - timedelta(seconds=1)
        except OverflowError:
            end = datetime.max.replace(tzinfo=UTC)
    return Period(start, end)
