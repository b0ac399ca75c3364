"""Venues: /region, and /venue for creating one."""

from typing import Annotated

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import DoneAnswer, Record, answer, done
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read, may_write
from api.plain_route import PlainRoute
from api.records.venue import VENUES, VenueAnswer
from api.retrieval import After, Limit, listed, one
from api.routes.parameters import PREFIX, VenueId
from api.tenancy import lock_venue
from api.writing import assign, write, written
from catalog.fields.venue import VenueInput
from catalog.models import Venue

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["venue"])
Writer = Annotated[AuthorizedCaller, may_write("venue")]
Reader = Annotated[AuthorizedCaller, may_read("venue")]


@router.post(
    "/venue",
    **operation("Create venue, by its other path", VenueAnswer, body=VenueInput, status=201),
)
@router.post("/region", **operation("Create venue", VenueAnswer, body=VenueInput, status=201))
async def create_venue(caller: Writer) -> Response:
    """Create a venue."""
    values = await caller.values(VenueInput)

    async def work(session: AsyncSession) -> Record:
        record = Venue(**values, company_id=caller.company_id)
        session.add(record)
        await session.flush()
        return await written(session, caller, VENUES, id=record.id)

    return answer(await write(caller.services, work), 201)


@router.get("/region", **operation("List venues", list[VenueAnswer]))
async def list_venues(caller: Reader, limit: Limit = None, after: After = 0) -> Response:
    """The company's venues."""
    return await listed(caller, VENUES, after=after, limit=limit)


@router.get("/region/{id}", **operation("Get venue", VenueAnswer))
async def get_venue(caller: Reader, venue_id: VenueId) -> Response:
    """One venue."""
    return await one(caller, VENUES, id=venue_id)


@router.put("/region/{id}", **operation("Edit venue", VenueAnswer, body=VenueInput))
async def edit_venue(caller: Writer, venue_id: VenueId) -> Response:
    """Change a venue. Optional fields that are not given stay as they are."""
    values = await caller.values(VenueInput)

    async def work(session: AsyncSession) -> Record:
        record = await lock_venue(session, caller.company_id, venue_id)
        assign(record, values)
        await session.flush()
        return await written(session, caller, VENUES, id=venue_id)

    return answer(await write(caller.services, work))


@router.delete("/region/{id}", **operation("Delete venue", DoneAnswer))
async def delete_venue(caller: Writer, venue_id: VenueId) -> Response:
    """Delete the venue with its beacons, geofences and campaigns. None of them fires any more."""

    async def work(session: AsyncSession) -> None:
        await session.delete(await lock_venue(session, caller.company_id, venue_id))

    await write(caller.services, work)
    return done()
