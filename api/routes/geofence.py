"""Geofences: /region/{id}/geofencing."""

from typing import Annotated

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import DoneAnswer, Record, answer
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read, may_write
from api.plain_route import PlainRoute
from api.records.venue import GEOFENCES, GeofenceAnswer
from api.retrieval import After, Limit, listed, one
from api.routes.parameters import PREFIX, RecordId, VenueId
from api.tenancy import lock_record, lock_venue
from api.writing import assign, delete_in_venue, write, written
from catalog.fields.venue import GeofenceInput
from catalog.models import Geofence

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["geofence"])
Writer = Annotated[AuthorizedCaller, may_write("geofence")]
Reader = Annotated[AuthorizedCaller, may_read("geofence")]


@router.post(
    "/region/{id}/geofencing",
    **operation("Create geofence", GeofenceAnswer, body=GeofenceInput, status=201),
)
async def create_geofence(caller: Writer, venue_id: VenueId) -> Response:
    """Create a geofence in the venue."""
    values = await caller.values(GeofenceInput)

    async def work(session: AsyncSession) -> Record:
        await lock_venue(session, caller.company_id, venue_id)
        record = Geofence(**values, venue_id=venue_id)
        session.add(record)
        await session.flush()
        return await written(session, caller, GEOFENCES, venue=venue_id, id=record.id)

    return answer(await write(caller.services, work), 201)


@router.get("/region/{id}/geofencing", **operation("List geofences", list[GeofenceAnswer]))
async def list_geofences(
    caller: Reader, venue_id: VenueId, limit: Limit = None, after: After = 0
) -> Response:
    """The geofences of the venue."""
    return await listed(caller, GEOFENCES, after=after, limit=limit, venue=venue_id)


@router.get("/region/{id}/geofencing/{uid}", **operation("Get geofence", GeofenceAnswer))
async def get_geofence(caller: Reader, venue_id: VenueId, number: RecordId) -> Response:
    """One geofence."""
    return await one(caller, GEOFENCES, venue=venue_id, id=number)


@router.put(
    "/region/{id}/geofencing/{uid}",
    **operation("Edit geofence", GeofenceAnswer, body=GeofenceInput),
)
async def edit_geofence(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Change a geofence."""
    values = await caller.values(GeofenceInput)

    async def work(session: AsyncSession) -> Record:
        record = await lock_record(session, Geofence, caller.company_id, venue_id, number)
        assign(record, values)
        await session.flush()
        return await written(session, caller, GEOFENCES, venue=venue_id, id=number)

    return answer(await write(caller.services, work))


@router.delete("/region/{id}/geofencing/{uid}", **operation("Delete geofence", DoneAnswer))
async def delete_geofence(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Delete the geofence."""
    return await delete_in_venue(caller, Geofence, venue_id, number)
