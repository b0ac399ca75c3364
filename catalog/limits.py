"""Limits on what one company may put into the catalog. Each is a setting (docs/decisions/0056).

They apply to additions. Records beyond a limit that an earlier version stored may be edited and
deleted, but not added to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.errors import LimitError
from catalog.models import Beacon, Campaign, Company

TEXTS = ("title", "push", "template", "url", "html")
LISTS = ("nfcs", "qrcodes")
CONTENT_FIELDS = (*TEXTS, *LISTS)
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
