"""Finds venues of the caller's company, and records in them, also to lock them for a change.

Records of other companies are not found. api.records.page restricts what is read.
"""

from typing import Any, TypeVar

from sqlalchemy import ColumnElement, bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, selectinload

from api.answers import Record
from api.errors import not_found
from catalog.models import Base, Beacon, Campaign, Geofence, Venue
from catalog.reading import Reader, Reading

InVenue = TypeVar("InVenue", Beacon, Geofence, Campaign)
NAMES: dict[type[Base], str] = {Beacon: "beacon", Geofence: "geofence", Campaign: "campaign"}

_VENUE = Reading(
    select(Venue.time_zone).where(
        Venue.id == bindparam("venue"), Venue.company_id == bindparam("company")
    )
)


def of_company(company_id: int) -> ColumnElement[bool]:
    """The condition for records of a company's venues; the query joins the venue."""
    return Venue.company_id == company_id


def in_venue(
    model: type[InVenue], company_id: int, venue_id: int
) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The condition for records of one venue of a company; the query joins the venue."""
    return (model.venue_id == venue_id, of_company(company_id))


def require_venue(reader: Reader, company_id: int, venue_id: object) -> Record:
    """What is read of the company's venue: its time zone. Raises ApiError 404."""
    found = reader.row(_VENUE, company=company_id, venue=venue_id)
    if found is None:
        raise not_found("venue")
    return found


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
