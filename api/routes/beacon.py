"""Beacons: /region/{id}/beacon."""

from typing import Annotated

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import DoneAnswer, Record, answer
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read, may_write
from api.plain_route import PlainRoute
from api.records.venue import BEACONS, BeaconAnswer
from api.references import find_tags
from api.requests import BeaconInput
from api.retrieval import After, Limit, listed, one
from api.routes.parameters import PREFIX, RecordId, VenueId
from api.tenancy import lock_record, lock_venue
from api.writing import assign, delete_in_venue, write, written
from catalog.limits import check_venue_size, lock_company
from catalog.models import Beacon
from catalog.open_campaigns import check_beacon

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["beacon"])
Writer = Annotated[AuthorizedCaller, may_write("beacon")]
Reader = Annotated[AuthorizedCaller, may_read("beacon")]
_TAKEN = {
    409: (
        "The triple uuid, major, minor is taken, perhaps by another company's beacon.",
        "the triple uuid, major, minor is taken",
    )
}


@router.post(
    "/region/{id}/beacon",
    **operation("Create beacon", BeaconAnswer, body=BeaconInput, status=201, also=_TAKEN),
)
async def create_beacon(caller: Writer, venue_id: VenueId) -> Response:
    """Create a beacon in the venue."""
    values = await caller.values(BeaconInput)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        await lock_venue(session, company, venue_id)
        found = await find_tags(session, company, values.get("tags", []))
        record = Beacon(**values | {"tags": found}, venue_id=venue_id)
        session.add(record)
        await session.flush()
        await check_venue_size(session, limits, Beacon, venue_id)
        if found:
            await check_beacon(session, limits, company, record, caller.services.clock())
        return await written(session, caller, BEACONS, venue=venue_id, id=record.id)

    return answer(await write(caller.services, work), 201)


@router.get("/region/{id}/beacon", **operation("List beacons", list[BeaconAnswer]))
async def list_beacons(
    caller: Reader, venue_id: VenueId, limit: Limit = None, after: After = 0
) -> Response:
    """The beacons of the venue."""
    return await listed(caller, BEACONS, after=after, limit=limit, venue=venue_id)


@router.get("/region/{id}/beacon/{uid}", **operation("Get beacon", BeaconAnswer))
async def get_beacon(caller: Reader, venue_id: VenueId, number: RecordId) -> Response:
    """One beacon."""
    return await one(caller, BEACONS, venue=venue_id, id=number)


@router.put(
    "/region/{id}/beacon/{uid}",
    **operation("Edit beacon", BeaconAnswer, body=BeaconInput, also=_TAKEN),
)
async def edit_beacon(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Change a beacon. Optional fields that are not given stay as they are."""
    values = await caller.values(BeaconInput)
    tags = values.pop("tags", None)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        record = await lock_record(session, Beacon, company, venue_id, number, Beacon.tags)
        before = set(record.tags)
        assign(record, values)
        if tags is not None:
            record.tags = await find_tags(session, company, tags)
        await session.flush()
        if not before.issuperset(record.tags):
            await check_beacon(session, limits, company, record, caller.services.clock())
        return await written(session, caller, BEACONS, venue=venue_id, id=number)

    return answer(await write(caller.services, work))


@router.delete("/region/{id}/beacon/{uid}", **operation("Delete beacon", DoneAnswer))
async def delete_beacon(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Delete the beacon. No campaign fires at it any more."""
    return await delete_in_venue(caller, Beacon, venue_id, number)
