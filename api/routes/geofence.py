"""Geofences: /region/{id}/geofencing."""

from typing import Annotated, Any

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import answer, done
from api.body import raise_faults, read_values
from api.errors import not_found
from api.openapi.operations import operation
from api.own import of_company, own_record, own_venue, require_venue
from api.permissions import Caller, may_read, may_write
from api.records import venue
from api.records.page import ONE, Page, Record
from api.routes.parameters import PREFIX, RecordId, VenueId
from api.streaming import After, Limit, listed
from api.writing import write
from catalog.fields.reading import Faults
from catalog.fields.venue import GEOFENCE
from catalog.models import Geofence

router = APIRouter(prefix=PREFIX)
Writer = Annotated[Caller, may_write("geofence")]
Reader = Annotated[Caller, may_read("geofence")]


@router.post(
    "/region/{id}/geofencing",
    **operation(
        "Create geofence", tag="geofence", answers="Geofence", body="GeofenceInput", status=201
    ),
)
async def create_geofence(caller: Writer, venue_id: VenueId) -> Response:
    """A new geofence in the venue."""
    values = await _values(caller)

    async def work(session: AsyncSession) -> Record:
        await own_venue(session, caller.company_id, venue_id)
        record = Geofence(**values, venue_id=venue_id)
        session.add(record)
        await session.flush()
        return await _one(session, record.id)

    return answer(await write(caller.services, work), 201)


@router.get(
    "/region/{id}/geofencing",
    **operation("List geofences", tag="geofence", answers="Geofence", many=True),
)
async def list_geofences(
    caller: Reader, venue_id: VenueId, limit: Limit = None, after: After = 0
) -> Response:
    """The geofences of the venue."""

    async def read(session: AsyncSession, page: Page) -> list[Record]:
        where = (Geofence.venue_id == venue_id, of_company(caller.company_id))
        found = await venue.geofences(session, where, page)
        if not found:
            await require_venue(session, caller.company_id, venue_id)
        return found

    return await listed(caller.services.database, read, after=after, limit=limit)


@router.get(
    "/region/{id}/geofencing/{uid}",
    **operation("Get geofence", tag="geofence", answers="Geofence"),
)
async def get_geofence(caller: Reader, venue_id: VenueId, number: RecordId) -> Response:
    """One geofence."""
    where = (Geofence.id == number, Geofence.venue_id == venue_id, of_company(caller.company_id))
    async with caller.services.database.autocommit() as session:
        found = await venue.geofences(session, where, ONE)
    if not found:
        raise not_found("geofence")
    return answer(found[0])


@router.put(
    "/region/{id}/geofencing/{uid}",
    **operation("Edit geofence", tag="geofence", answers="Geofence", body="GeofenceInput"),
)
async def edit_geofence(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """The geofence, changed."""
    values = await _values(caller)

    async def work(session: AsyncSession) -> Record:
        record = await own_record(session, Geofence, caller.company_id, venue_id, number)
        for name, value in values.items():
            setattr(record, name, value)
        await session.flush()
        return await _one(session, number)

    return answer(await write(caller.services, work))


@router.delete(
    "/region/{id}/geofencing/{uid}", **operation("Delete geofence", tag="geofence", answers="Done")
)
async def delete_geofence(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Delete the geofence."""

    async def work(session: AsyncSession) -> None:
        record = await own_record(session, Geofence, caller.company_id, venue_id, number)
        await session.delete(record)

    await write(caller.services, work)
    return done()


async def _values(caller: Caller) -> dict[str, Any]:
    faults = Faults()
    values = read_values(GEOFENCE, await caller.body(), faults)
    raise_faults(faults)
    return values


async def _one(session: AsyncSession, number: int) -> Record:
    return (await venue.geofences(session, (Geofence.id == number,), ONE))[0]
