"""Venues: /region, and /venue for creating one."""

from typing import Annotated

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import answer, done
from api.body import raise_faults, read_values
from api.errors import not_found
from api.openapi.operations import operation
from api.own import of_company, own_venue
from api.permissions import Caller, may_read, may_write
from api.records import venue
from api.records.page import ONE, Page, Record
from api.routes.parameters import PREFIX, VenueId
from api.streaming import After, Limit, listed
from api.writing import write
from catalog.fields.reading import Faults
from catalog.fields.venue import VENUE
from catalog.models import Venue

router = APIRouter(prefix=PREFIX)
Writer = Annotated[Caller, may_write("venue")]
Reader = Annotated[Caller, may_read("venue")]


@router.post(
    "/venue",
    **operation(
        "Create venue, by its other path",
        tag="venue",
        answers="Venue",
        body="VenueInput",
        status=201,
    ),
)
@router.post(
    "/region",
    **operation("Create venue", tag="venue", answers="Venue", body="VenueInput", status=201),
)
async def create_venue(caller: Writer) -> Response:
    """A new venue."""
    faults = Faults()
    values = read_values(VENUE, await caller.body(), faults)
    raise_faults(faults)

    async def work(session: AsyncSession) -> Record:
        record = Venue(**values, company_id=caller.company_id)
        session.add(record)
        await session.flush()
        return await _one(session, record.id)

    return answer(await write(caller.services, work), 201)


@router.get("/region", **operation("List venues", tag="venue", answers="Venue", many=True))
async def list_venues(caller: Reader, limit: Limit = None, after: After = 0) -> Response:
    """The company's venues."""

    async def read(session: AsyncSession, page: Page) -> list[Record]:
        return await venue.venues(session, (of_company(caller.company_id),), page)

    return await listed(caller.services.database, read, after=after, limit=limit)


@router.get("/region/{id}", **operation("Get venue", tag="venue", answers="Venue"))
async def get_venue(caller: Reader, venue_id: VenueId) -> Response:
    """One venue."""
    where = (Venue.id == venue_id, of_company(caller.company_id))
    async with caller.services.database.autocommit() as session:
        found = await venue.venues(session, where, ONE)
    if not found:
        raise not_found("venue")
    return answer(found[0])


@router.put(
    "/region/{id}", **operation("Edit venue", tag="venue", answers="Venue", body="VenueInput")
)
async def edit_venue(caller: Writer, venue_id: VenueId) -> Response:
    """The venue, changed. Optional fields that are not given stay as they are."""
    faults = Faults()
    values = read_values(VENUE, await caller.body(), faults)
    raise_faults(faults)

    async def work(session: AsyncSession) -> Record:
        record = await own_venue(session, caller.company_id, venue_id)
        for name, value in values.items():
            setattr(record, name, value)
        await session.flush()
        return await _one(session, venue_id)

    return answer(await write(caller.services, work))


@router.delete("/region/{id}", **operation("Delete venue", tag="venue", answers="Done"))
async def delete_venue(caller: Writer, venue_id: VenueId) -> Response:
    """Delete the venue with its beacons, geofences and campaigns; none of them fires any more."""

    async def work(session: AsyncSession) -> None:
        await session.delete(await own_venue(session, caller.company_id, venue_id))

    await write(caller.services, work)
    return done()


async def _one(session: AsyncSession, venue_id: int) -> Record:
    return (await venue.venues(session, (Venue.id == venue_id,), ONE))[0]
