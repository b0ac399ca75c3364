"""Limits on what one company may put into the catalog. Each is a setting.

They apply to additions: records beyond a limit may be edited and deleted, but not added to.

A campaign is open at a beacon from its start to its end while it is active and names the beacon, or
names one of the beacon's tags at the beacon's venue. Weekdays, hours and the activity of beacon and
venue do not count: they change every day, and no such change may exceed the limit.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.chunks import chunked
from catalog.errors import LimitError
from catalog.index.reading import CampaignTargets
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Tag,
    Venue,
    at_offset,
    beacon_tag,
    campaign_beacon,
    campaign_tag,
)

TEXTS = ("title", "push", "template", "url", "html")
LISTS = ("nfcs", "qrcodes")
CONTENT_FIELDS = (*TEXTS, *LISTS)
_CHUNK = 1000
_DAY = timedelta(days=1)
_PLURAL = {Beacon: "beacons", Campaign: "campaigns"}


@dataclass(frozen=True, kw_only=True)
class CatalogLimits:
    """Bytes of a campaign's content, records in a venue, campaigns open at a beacon at once."""

    campaign_content: int = 64 * 1024
    venue_campaigns: int = 1000
    venue_beacons: int = 10_000
    beacon_open_campaigns: int = 100


DEFAULT_LIMITS = CatalogLimits()


def check_content(limits: CatalogLimits, new: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Raise LimitError if a campaign's content is too long, unless it was as long before."""
    size, most = _size(new), limits.campaign_content
    if size <= most or size <= _size(old):
        return
    longest = max(
        (name for name in CONTENT_FIELDS if new.get(name)), key=lambda n: _size({n: new[n]})
    )
    raise LimitError(
        longest,
        f"accepted: {', '.join(CONTENT_FIELDS)} of at most {most} bytes together, not {size}",
    )


def _size(values: Mapping[str, Any]) -> int:
    texts = sum(len((values.get(name) or "").encode()) for name in TEXTS)
    return texts + sum(len(orjson.dumps(values[name])) for name in LISTS if values.get(name))


async def lock_company(session: AsyncSession, company_id: int) -> None:
    """Make other writers that add to the company wait until the transaction ends.

    The lock does not block the checks of foreign keys, so the recorder can add devices.
    """
    query = select(Company.id).where(Company.id == company_id)
    await session.execute(query.with_for_update(key_share=True))


async def check_venue_size(
    session: AsyncSession, limits: CatalogLimits, model: type[Beacon | Campaign], venue_id: int
) -> None:
    """Raise LimitError if a venue has too many records of a kind after an addition."""
    most = limits.venue_beacons if model is Beacon else limits.venue_campaigns
    inside = select(model.id).where(model.venue_id == venue_id).limit(most + 1).subquery()
    found = await session.scalar(select(func.count()).select_from(inside)) or 0
    if found > most:
        raise LimitError("", f"accepted: at most {most} {_PLURAL[model]} in a venue")


class Period(NamedTuple):
    """From one instant to another, both included."""

    start: datetime
    end: datetime

    def overlaps(self, other: "Period") -> bool:
        """Whether the two have an instant in common."""
        return self.start <= other.end and self.end >= other.start

    def clipped(self, other: "Period") -> "Period":
        """The part that lies within an overlapping one."""
        return Period(max(self.start, other.start), min(self.end, other.end))


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


class CrowdedBeacon(NamedTuple):
    """A beacon that more campaigns target than may be open at once; `periods` are theirs."""

    name: str
    beacon_id: int
    campaigns: frozenset[int]
    periods: list[Period]
    limit: int

    def peak(self, within: Period | None = None) -> int:
        """The most campaigns that are open at once within the period; 0 if never too many."""
        periods = self.periods
        if within is not None:
            periods = [period.clipped(within) for period in periods if period.overlaps(within)]
        most = most_at_once(periods)
        return most if most > self.limit else 0


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
    known: dict[frozenset[int], list[Period]] = {}
    last = 0
    while rows := (await session.execute(beacons.where(Beacon.id > last))).all():
        last = rows[-1].id
        campaigns = await targets.of({row.id: row.venue_id for row in rows})
        for row in rows:
            ids = campaigns[row.id]
            if len(ids) <= most:
                continue
            if ids not in known:
                known[ids] = await _read_periods(session, ids, now)
            crowded = CrowdedBeacon(row.name, row.id, ids, known[ids], most)
            if crowded.peak():
                yield crowded


def most_at_once(periods: Iterable[Period]) -> int:
    """The most of the periods that have an instant in common."""
    edges = sorted(edge for period in periods for edge in ((period.start, 0), (period.end, 1)))
    most = open_now = 0
    for _, closes in edges:
        open_now += -1 if closes else 1
        most = max(most, open_now)
    return most


async def _read_periods(session: AsyncSession, ids: Collection[int], now: datetime) -> list[Period]:
    """The periods of the campaigns that have not ended."""
    periods: list[Period] = []
    query = select(Campaign.id, Campaign.start_at, Campaign.end_at, Campaign.end_offset)
    for chunk in chunked(sorted(ids), _CHUNK):
        rows = await session.execute(query.where(Campaign.id.in_(chunk)))
        periods += (_period(row.start_at, row.end_at, row.end_offset) for row in rows)
    return [period for period in periods if period.start <= period.end and period.end >= now]


def _period(start: datetime, end: datetime, end_offset: int) -> Period:
    written: Any = at_offset(end, end_offset)
    if (written.hour, written.minute, written.second) == (0, 0, 0):
        try:
            end += _DAY - timedelta(seconds=1)
        except OverflowError:
            end = datetime.max.replace(tzinfo=UTC)
    return Period(start, end)
