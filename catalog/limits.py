"""Limits on what one company may put into the catalog. Each is a setting.

They apply to additions: records beyond a limit may be edited and deleted, but not added to.

A campaign is open at a beacon from its start to its end while it is active and names the beacon, or
names one of the beacon's tags at the beacon's venue. Weekdays, hours and the activity of beacon and
venue do not count: they change every day, and no such change may exceed the limit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.errors import LimitError
from catalog.index.reading import campaigns_at, pages, targeted_by
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Geofence,
    Venue,
    at_offset,
)

CONTENT_FIELDS = ("title", "push", "template", "url", "html")
_DAY = timedelta(days=1)
_LAST_INSTANT = datetime.max.replace(tzinfo=UTC)
_PLURAL = {Beacon: "beacons", Campaign: "campaigns"}


@dataclass(frozen=True, kw_only=True)
class CatalogLimits:
    """Bytes of a campaign's content, records in a venue or a company, campaigns open at a beacon at
    once."""

    campaign_content: int = 64 * 1024
    venue_campaigns: int = 1000
    venue_beacons: int = 10_000
    company_geofences: int = 10_000
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
    return sum(len((values.get(name) or "").encode()) for name in CONTENT_FIELDS)


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


async def check_geofences(session: AsyncSession, limits: CatalogLimits, company_id: int) -> None:
    """Raise LimitError if a company has too many geofences after an addition."""
    most = limits.company_geofences
    query = select(func.count(Geofence.id)).join(Geofence.venue)
    if (await session.scalar(query.where(Venue.company_id == company_id)) or 0) > most:
        raise LimitError("", f"accepted: at most {most} geofences in a company")


async def check_quiet_hours(session: AsyncSession, company_id: int, field: str) -> None:
    """Raise LimitError if quiet hours may hold where no time zone is known."""
    company = await session.get_one(Company, company_id)
    if company.quiet_hours is None or company.time_zone is not None:
        return
    query = select(Venue.time_zone).where(Venue.company_id == company_id).distinct()
    zones = (await session.scalars(query)).all()
    if not zones or None in zones:
        message = "quiet hours need a time zone, of the company or of each venue"
        raise LimitError(field, message)


class Period(NamedTuple):
    """From one instant to another, both included."""

    start: datetime
    end: datetime


_ALWAYS = Period(datetime.min.replace(tzinfo=UTC), _LAST_INSTANT)


def open_period(campaign: Any) -> Period:
    """A campaign's period from start to end. An end at midnight includes the following day.

    `campaign` has `start_at`, `end_at` and `end_offset`.
    """
    written: Any = at_offset(campaign.end_at, campaign.end_offset)
    if (written.hour, written.minute, written.second) != (0, 0, 0):
        return Period(campaign.start_at, campaign.end_at)
    last = min(campaign.end_at, _LAST_INSTANT - _DAY)
    return Period(campaign.start_at, last + _DAY - timedelta(seconds=1))


async def check_campaign(
    session: AsyncSession, limits: CatalogLimits, company_id: int, campaign: Campaign, now: datetime
) -> None:
    """Raise LimitError if a campaign that was just written is one too many at a beacon."""
    which, period = targeted_by([campaign.id]), open_period(campaign)
    if fault := await crowded_beacon(session, limits, company_id, now, which, period):
        raise LimitError("active", fault)


async def check_beacon(
    session: AsyncSession, limits: CatalogLimits, company_id: int, beacon: Beacon, now: datetime
) -> None:
    """Raise LimitError if a beacon that was just written has too many campaigns, by its tags."""
    if fault := await crowded_beacon(session, limits, company_id, now, Beacon.id == beacon.id):
        raise LimitError("tags", fault)


async def crowded_beacon(
    session: AsyncSession,
    limits: CatalogLimits,
    company_id: int,
    now: datetime,
    which: ColumnElement[bool],
    within: Period = _ALWAYS,
) -> str | None:
    """The fault of a company's beacon, among `which`, with too many campaigns open at once.

    Counts what is open within a period. None without such a beacon.
    """
    own = Venue.company_id == company_id
    # A day more, because an end at midnight includes the day.
    current = and_(Campaign.active, Campaign.end_at >= now - _DAY)
    dates = select(Campaign.id, Campaign.start_at, Campaign.end_at, Campaign.end_offset)
    dated = await session.execute(dates.join(Campaign.venue).where(own, current))
    periods = {row.id: open_period(row) for row in dated}
    periods = {id_: period for id_, period in periods.items() if period.end >= now}
    if len(periods) <= limits.beacon_open_campaigns:
        return None
    beacons = select(Beacon.name, Beacon.venue_id).join(Beacon.venue).where(own, which)
    async for rows in pages(session, beacons, Beacon.id):
        venues = {row.page_key: row.venue_id for row in rows}
        campaigns = await campaigns_at(session, venues, current)
        for name, _, number in rows:
            open_here = campaigns[number] & periods.keys()
            if len(open_here) <= limits.beacon_open_campaigns:
                continue
            most = _most_open((periods[id_] for id_ in open_here), within)
            if most > limits.beacon_open_campaigns:
                return (
                    f"accepted: at most {limits.beacon_open_campaigns} campaigns open at a beacon "
                    f"at once; the beacon {name!r} would have {most}"
                )
    return None


def _most_open(periods: Iterable[Period], within: Period) -> int:
    """How many of the periods overlap at most, within another one."""
    edges = []
    for period in periods:
        start, end = max(period.start, within.start), min(period.end, within.end)
        if start <= end:
            edges += [(start, 0, 1), (end, 1, -1)]  # both instants are included
    return max(accumulate(change for *_, change in sorted(edges)), default=0)
