"""Venues, and the beacons and geofences in them: /region, and /venue for creating one."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload
from starlette.responses import Response

from api.answers import Answer, Count, DoneAnswer, Id, NamedAnswer, Text
from api.bodies import After, Limit, OwnId, RecordId, VenueId, accepts
from api.permissions import PREFIX, AuthorizedCaller, may_read, may_write
from api.tenancy import (
    Query,
    Tags,
    add_shared_operations,
    assign,
    created,
    deleted,
    edited,
    find,
    find_referenced,
    find_venue,
    listed,
    of_company,
    shown,
    write,
    written,
)
from catalog.fields import ABSENT
from catalog.inputs import BeaconFields, GeofenceInput, VenueInput
from catalog.limits import check_beacon, check_venue_size, lock_company
from catalog.models import Beacon, Geofence, Venue

router = APIRouter(prefix=PREFIX)
Writer = Annotated[AuthorizedCaller, may_write("venue")]
Reader = Annotated[AuthorizedCaller, may_read("venue")]
_VENUE = accepts(
    VenueInput,
    {"name": "Library", "address": "Castelló de la Plana", "active": True, "width": 32},
)


class VenueAnswer(Answer):
    id: Id
    name: str
    address: str
    active: bool
    width: Count | None
    height: Count | None
    image: Text
    time_zone: Text


@router.post(
    "/venue",
    tags=["venue"],
    status_code=201,
    openapi_extra=_VENUE,
    operation_id="create_venue_by_its_other_path",
)
@router.post("/region", tags=["venue"], status_code=201, openapi_extra=_VENUE)
async def create_venue(caller: Writer) -> VenueAnswer:
    """Create a venue."""
    values = await caller.values(VenueInput)
    return await created(caller, Venue, VenueAnswer, values)


@router.get("/region", tags=["venue"], response_model=list[VenueAnswer])
async def list_venues(caller: Reader, limit: Limit = None, after: After = 0) -> Response:
    """The company's venues."""
    query = of_company(Venue, caller.company_id)
    return await listed(caller, query, VenueAnswer, after=after, limit=limit)


@router.get("/region/{id}", tags=["venue"])
async def get_venue(caller: Reader, number: OwnId) -> VenueAnswer:
    """One venue."""
    return await shown(caller, of_company(Venue, caller.company_id), VenueAnswer, number)


@router.put("/region/{id}", tags=["venue"], openapi_extra=_VENUE)
async def edit_venue(caller: Writer, number: OwnId) -> VenueAnswer:
    """Change a venue. Optional fields that are not given stay as they are."""
    values = await caller.values(VenueInput)
    query = of_company(Venue, caller.company_id)
    return await edited(caller, query, VenueAnswer, number, values)


@router.delete("/region/{id}", tags=["venue"])
async def delete_venue(caller: Writer, number: OwnId) -> DoneAnswer:
    """Delete the venue with its beacons, geofences and campaigns. None of them fires any more."""
    return await deleted(caller, of_company(Venue, caller.company_id), number)


# Beacons.

_BEACONS = "/region/{id}/beacon"
BeaconWriter = Annotated[AuthorizedCaller, may_write("beacon")]


class BeaconInput(BeaconFields):
    """A beacon with its tags."""

    tags: Tags = ABSENT


_BEACON = accepts(
    BeaconInput,
    {
        "name": "Study desk Z",
        "uuid": "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10",
        "major": 1,
        "minor": 260,
        "active": True,
        "proximity": "near",
        "tags": [{"name": "study"}],
    },
)


class BeaconAnswer(Answer):
    id: Id
    name: str
    uuid: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    major: Count
    minor: Count
    active: bool
    proximity: Literal["immediate", "near", "far"]
    x: int | None
    y: int | None
    color: Text
    tags: list[NamedAnswer]


@router.post(_BEACONS, tags=["beacon"], status_code=201, openapi_extra=_BEACON)
async def create_beacon(caller: BeaconWriter, venue_id: VenueId) -> BeaconAnswer:
    """Create a beacon in the venue.

    409: the triple uuid, major, minor is taken, perhaps by another company's beacon.
    """
    values = await caller.values(BeaconInput)

    async def work(session: AsyncSession) -> BeaconAnswer:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        await find_venue(session, company, venue_id, lock=True)
        tags = await find_referenced(session, company, "tags", values.get("tags", []))
        record = Beacon(**values | {"tags": tags}, venue_id=venue_id)
        session.add(record)
        await session.flush()
        await check_venue_size(session, limits, Beacon, venue_id)
        if tags:
            await check_beacon(session, limits, company, record, caller.services.clock())
        found = await written(session, _beacons(caller, venue_id), record.id)
        return BeaconAnswer.model_validate(found)

    return await write(caller.services, work)


@router.put(_BEACONS + "/{uid}", tags=["beacon"], openapi_extra=_BEACON)
async def edit_beacon(caller: BeaconWriter, venue_id: VenueId, number: RecordId) -> BeaconAnswer:
    """Change a beacon. Optional fields that are not given stay as they are.

    409: the triple uuid, major, minor is taken, perhaps by another company's beacon.
    """
    values = await caller.values(BeaconInput)
    tags = values.pop("tags", None)
    query = _beacons(caller, venue_id)

    async def work(session: AsyncSession) -> BeaconAnswer:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        record = await find(session, query, number, lock=True)
        before = set(record.tags)
        assign(record, values)
        if tags is not None:
            record.tags = await find_referenced(session, company, "tags", tags)
        await session.flush()
        if not before.issuperset(record.tags):
            await check_beacon(session, limits, company, record, caller.services.clock())
        return BeaconAnswer.model_validate(await written(session, query, number))

    return await write(caller.services, work)


def _beacons(caller: AuthorizedCaller, venue_id: int) -> Query[Beacon]:
    query = of_company(Beacon, caller.company_id, venue_id)
    return query.options(selectinload(Beacon.tags))


add_shared_operations(router, _BEACONS, "beacon", _beacons, BeaconAnswer)


# Geofences.

_FENCES = "/region/{id}/geofencing"
FenceWriter = Annotated[AuthorizedCaller, may_write("geofence")]
_FENCE = accepts(
    GeofenceInput,
    {"name": "Campus", "longitude": -0.0672, "latitude": 39.9944, "radius": 300, "active": True},
)


class GeofenceAnswer(Answer):
    id: Id
    name: str
    longitude: float
    latitude: float
    radius: Id
    active: bool


@router.post(_FENCES, tags=["geofence"], status_code=201, openapi_extra=_FENCE)
async def create_geofence(caller: FenceWriter, venue_id: VenueId) -> GeofenceAnswer:
    """Create a geofence in the venue."""
    values = await caller.values(GeofenceInput)
    return await created(caller, Geofence, GeofenceAnswer, values, venue_id)


@router.put(_FENCES + "/{uid}", tags=["geofence"], openapi_extra=_FENCE)
async def edit_geofence(caller: FenceWriter, venue_id: VenueId, number: RecordId) -> GeofenceAnswer:
    """Change a geofence."""
    values = await caller.values(GeofenceInput)
    return await edited(caller, _geofences(caller, venue_id), GeofenceAnswer, number, values)


def _geofences(caller: AuthorizedCaller, venue_id: int) -> Query[Geofence]:
    return of_company(Geofence, caller.company_id, venue_id)


add_shared_operations(router, _FENCES, "geofence", _geofences, GeofenceAnswer)
