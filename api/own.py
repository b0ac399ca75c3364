"""The caller's own records, to be changed; anybody else's are not there."""

from typing import Any, TypeVar

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, selectinload

from api.errors import not_found
from catalog.models import Base, Beacon, Campaign, Geofence, Venue

Placed = TypeVar("Placed", Beacon, Geofence, Campaign)
_NAMES: dict[type[Base], str] = {Beacon: "beacon", Geofence: "geofence", Campaign: "campaign"}


def of_company(company_id: int) -> ColumnElement[bool]:
    """Records of venues of a company, where the venue is joined."""
    return Venue.company_id == company_id


async def require_venue(session: AsyncSession, company_id: int, venue_id: int) -> None:
    """Raise ApiError 404 unless the venue is the company's."""
    own = select(exists().where(Venue.id == venue_id, of_company(company_id)))
    if not await session.scalar(own):
        raise not_found("venue")


async def own_venue(session: AsyncSession, company_id: int, venue_id: int) -> Venue:
    """The venue, locked. Raises ApiError 404."""
    query = select(Venue).where(Venue.id == venue_id, of_company(company_id))
    found = await session.scalar(query.with_for_update())
    if found is None:
        raise not_found("venue")
    return found


async def own_record(
    session: AsyncSession,
    model: type[Placed],
    company_id: int,
    venue_id: int,
    number: int,
    *with_ties: InstrumentedAttribute[Any],
) -> Placed:
    """A record of a venue, locked, with the ties that are named loaded. Raises ApiError 404."""
    query = (
        select(model)
        .join(Venue, model.venue_id == Venue.id)
        .where(model.id == number, model.venue_id == venue_id, of_company(company_id))
        .options(*(selectinload(tie) for tie in with_ties))
        .with_for_update(of=model)
    )
    found = await session.scalar(query)
    if found is None:
        raise not_found(_NAMES[model])
    return found
