"""Restricts queries to the caller's company. Records of other companies are not found."""

from typing import Any, TypeVar

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, selectinload

from api.errors import not_found
from catalog.models import Base, Beacon, Campaign, Geofence, Venue

InVenue = TypeVar("InVenue", Beacon, Geofence, Campaign)
NAMES: dict[type[Base], str] = {Beacon: "beacon", Geofence: "geofence", Campaign: "campaign"}


def of_company(company_id: int) -> ColumnElement[bool]:
    """The condition for records of a company's venues; the query joins the venue."""
    return Venue.company_id == company_id


def in_venue(
    model: type[InVenue], company_id: int, venue_id: int
) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The condition for records of one venue of a company; the query joins the venue."""
    return (model.venue_id == venue_id, of_company(company_id))


async def require_venue(session: AsyncSession, company_id: int, venue_id: int) -> None:
    """Raise ApiError 404 unless the venue is the company's."""
    known = select(exists().where(Venue.id == venue_id, of_company(company_id)))
    if not await session.scalar(known):
        raise not_found("venue")


async def lock_venue(session: AsyncSession, company_id: int, venue_id: int) -> Venue:
    """The venue, locked. Raises ApiError 404."""
    query = select(Venue).where(Venue.id == venue_id, of_company(company_id))
    found = await session.scalar(query.with_for_update())
    if found is None:
        raise not_found("venue")
    return found


async def lock_record(
    session: AsyncSession,
    model: type[InVenue],
    company_id: int,
    venue_id: int,
    number: int,
    *relations: InstrumentedAttribute[Any],
) -> InVenue:
    """A record of a venue, locked, with the given relations loaded. Raises ApiError 404."""
    query = (
        select(model)
        .join(Venue, model.venue_id == Venue.id)
        .where(model.id == number, *in_venue(model, company_id, venue_id))
        .options(*(selectinload(relation) for relation in relations))
        .with_for_update(of=model)
    )
    found = await session.scalar(query)
    if found is None:
        raise not_found(NAMES[model])
    return found
