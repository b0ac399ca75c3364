"""Beacons: /region/{id}/beacon."""

from typing import Annotated, Any

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import answer, done
from api.body import raise_faults, read_values
from api.errors import not_found
from api.fields import BEACON
from api.openapi.operations import operation
from api.own import of_company, own_record, own_venue, require_venue
from api.permissions import Caller, may_read, may_write
from api.records import venue
from api.records.page import ONE, Page, Record
from api.routes.parameters import PREFIX, RecordId, VenueId
from api.streaming import After, Limit, listed
from api.ties import find_tags
from api.writing import write
from catalog.crowding import check_beacon
from catalog.fields.reading import Faults
from catalog.limits import check_room, lock_company
from catalog.models import Beacon

router = APIRouter(prefix=PREFIX)
Writer = Annotated[Caller, may_write("beacon")]
Reader = Annotated[Caller, may_read("beacon")]


@router.post(
    "/region/{id}/beacon",
    **operation(
        "Create beacon",
        tag="beacon",
        answers="Beacon",
        body="BeaconInput",
        status=201,
        conflicts="The triple uuid, major, minor is taken, perhaps by another company's beacon.",
    ),
)
async def create_beacon(caller: Writer, venue_id: VenueId) -> Response:
    """A new beacon in the venue."""
    values = await _values(caller)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        await own_venue(session, company, venue_id)
        found = await find_tags(session, company, values.get("tags", []))
        record = Beacon(**values | {"tags": found}, venue_id=venue_id)
        session.add(record)
        await session.flush()
        await check_room(session, limits, Beacon, venue_id)
        if found:
            await check_beacon(session, limits, company, record, caller.services.clock())
        return await _one(session, record.id)

    return answer(await write(caller.services, work), 201)


@router.get(
    "/region/{id}/beacon", **operation("List beacons", tag="beacon", answers="Beacon", many=True)
)
async def list_beacons(
    caller: Reader, venue_id: VenueId, limit: Limit = None, after: After = 0
) -> Response:
    """The beacons of the venue."""

    async def read(session: AsyncSession, page: Page) -> list[Record]:
        where = (Beacon.venue_id == venue_id, of_company(caller.company_id))
        found = await venue.beacons(session, where, page)
        if not found:
            await require_venue(session, caller.company_id, venue_id)
        return found

    return await listed(caller.services.database, read, after=after, limit=limit)


@router.get("/region/{id}/beacon/{uid}", **operation("Get beacon", tag="beacon", answers="Beacon"))
async def get_beacon(caller: Reader, venue_id: VenueId, number: RecordId) -> Response:
    """One beacon."""
    where = (Beacon.id == number, Beacon.venue_id == venue_id, of_company(caller.company_id))
    async with caller.services.database.autocommit() as session:
        found = await venue.beacons(session, where, ONE)
    if not found:
        raise not_found("beacon")
    return answer(found[0])


@router.put(
    "/region/{id}/beacon/{uid}",
    **operation(
        "Edit beacon",
        tag="beacon",
        answers="Beacon",
        body="BeaconInput",
        conflicts="The triple uuid, major, minor is taken, perhaps by another company's beacon.",
    ),
)
async def edit_beacon(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """The beacon, changed. Optional fields that are not given stay as they are."""
    values = await _values(caller)
    tags = values.pop("tags", None)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        record = await own_record(session, Beacon, company, venue_id, number, Beacon.tags)
        before = set(record.tags)
        for name, value in values.items():
            setattr(record, name, value)
        if tags is not None:
            record.tags = await find_tags(session, company, tags)
        await session.flush()
        if not before.issuperset(record.tags):
            await check_beacon(session, limits, company, record, caller.services.clock())
        return await _one(session, number)

    return answer(await write(caller.services, work))


@router.delete(
    "/region/{id}/beacon/{uid}", **operation("Delete beacon", tag="beacon", answers="Done")
)
async def delete_beacon(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Delete the beacon; nothing fires at it any more."""

    async def work(session: AsyncSession) -> None:
        record = await own_record(session, Beacon, caller.company_id, venue_id, number)
        await session.delete(record)

    await write(caller.services, work)
    return done()


async def _values(caller: Caller) -> dict[str, Any]:
    faults = Faults()
    values = read_values(BEACON, await caller.body(), faults)
    raise_faults(faults)
    return values


async def _one(session: AsyncSession, number: int) -> Record:
    return (await venue.beacons(session, (Beacon.id == number,), ONE))[0]
