"""Limits on what one company may put into the catalog. Each is a setting.

They apply to additions: records beyond a limit may be edited and deleted, but not added to. Only
the content of a campaign must fit at each edit.

A campaign is open at a beacon until its end while it is active and names the beacon, or one of the
beacon's tags at the beacon's venue: each of these stands in the beacon's entry of the index.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.errors import LimitError
from catalog.index.reading import campaigns_at, pages
from catalog.models import Beacon, Campaign, Company, Geofence, Venue

CONTENT_FIELDS = ("title", "push", "template", "url", "html")
_DAY = timedelta(days=1)
_EVERY = true()


@dataclass(frozen=True, kw_only=True)
class CatalogLimits:
    """Bytes of a campaign's content, records in a venue or company, open campaigns at a beacon."""

    campaign_content: int
    venue_campaigns: int
    venue_beacons: int
    company_geofences: int
    beacon_open_campaigns: int


def check_content(limits: CatalogLimits, campaign: Mapping[str, Any]) -> None:
    """Raise LimitError if a campaign's content is too long."""
    sizes = {name: len((campaign.get(name) or "").encode()) for name in CONTENT_FIELDS}
    size, most = sum(sizes.values()), limits.campaign_content
    if size > most:
        names = ", ".join(CONTENT_FIELDS)
        message = f"accepted: {names} of at most {most} bytes together, not {size}"
        raise LimitError(max(sizes, key=sizes.__getitem__), message)


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
    query = select(func.count(model.id)).where(model.venue_id == venue_id)
    if (await session.scalar(query) or 0) > most:
        raise LimitError("", f"accepted: at most {most} {model.__tablename__}s in a venue")


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


async def check_open_campaigns(
    session: AsyncSession,
    limits: CatalogLimits,
    company_id: int,
    now: datetime,
    which: ColumnElement[bool] = _EVERY,
    field: str = "active",
) -> None:
    """Raise LimitError if a company's beacon, among `which`, has too many open campaigns."""
    most, own = limits.beacon_open_campaigns, Venue.company_id == company_id
    # A day more, because an end at midnight includes the day.
    is_open = and_(Campaign.active, Campaign.end_at >= now - _DAY)
    total = select(func.count(Campaign.id)).join(Campaign.venue).where(own, is_open)
    if (await session.scalar(total) or 0) <= most:
        return
    beacons = select(Beacon.name, Beacon.venue_id).join(Beacon.venue).where(own, which)
    async for rows in pages(session, beacons, Beacon.id):
        venues = {row.page_key: row.venue_id for row in rows}
        campaigns = await campaigns_at(session, venues, is_open)
        for name, _, number in rows:
            if len(campaigns[number]) > most:
                raise LimitError(
                    field,
                    f"accepted: at most {most} open campaigns at a beacon; the beacon {name!r} "
                    f"would have {len(campaigns[number])}",
                )
