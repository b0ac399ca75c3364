"""Campaigns: /lieu/{id}/campaign."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import answer, done
from api.body import raise_faults, read_values
from api.errors import not_found
from api.fields import CAMPAIGN_CREATE, CAMPAIGN_EDIT
from api.openapi.operations import operation
from api.own import of_company, own_record, own_venue, require_venue
from api.permissions import Caller, may_read, may_write
from api.records import campaign
from api.records.page import ONE, Page, Record
from api.routes.parameters import PREFIX, RecordId, VenueId
from api.streaming import After, Limit, listed
from api.ties import find_beacons, find_geofences, find_tags
from api.writing import write
from catalog.crowding import check_campaign, reach_of
from catalog.fields.campaign import campaign_columns, campaign_conflicts
from catalog.fields.reading import Fault, Faults, Field
from catalog.limits import CONTENT, check_content, check_room, lock_company
from catalog.models import Campaign

router = APIRouter(prefix=PREFIX)
Writer = Annotated[Caller, may_write("campaign")]
Reader = Annotated[Caller, may_read("campaign")]
_CHECKED_TOGETHER = ("format", "start", "end", *CONTENT)
_CAMPAIGNS_A_PAGE = 50


@router.post(
    "/lieu/{id}/campaign",
    **operation(
        "Create campaign", tag="campaign", answers="Campaign", body="CampaignCreate", status=201
    ),
)
async def create_campaign(caller: Writer, venue_id: VenueId) -> Response:
    """A new campaign of the venue.

    With format connector no other content is needed, and the company's connector may be set up
    later: until it is, the campaign sends nothing. Limited are the bytes of title, push, template,
    url, html, nfcs and qrcodes together, the campaigns of a venue, and how many are open at a
    beacon at once; each refusal says the limit.
    """
    faults = Faults()
    values = await _values(caller, CAMPAIGN_CREATE, faults)
    _check_together(values, faults)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        check_content(limits, values, {})
        await lock_company(session, company)
        await own_venue(session, company, venue_id)
        ties = await _ties(session, company, values)
        record = Campaign(**campaign_columns(values, weekdays=0) | ties, venue_id=venue_id)
        session.add(record)
        await session.flush()
        await check_room(session, limits, Campaign, venue_id)
        if record.active:
            await check_campaign(session, limits, company, record, caller.services.clock())
        return await _one(session, record.id)

    return answer(await write(caller.services, work), 201)


@router.get(
    "/lieu/{id}/campaign",
    **operation("List campaigns", tag="campaign", answers="Campaign", many=True),
)
async def list_campaigns(
    caller: Reader, venue_id: VenueId, limit: Limit = None, after: After = 0
) -> Response:
    """The campaigns of the venue."""

    async def read(session: AsyncSession, page: Page) -> list[Record]:
        where = (Campaign.venue_id == venue_id, of_company(caller.company_id))
        found = await campaign.campaigns(session, where, page)
        if not found:
            await require_venue(session, caller.company_id, venue_id)
        return found

    database = caller.services.database
    return await listed(database, read, after=after, limit=limit, page=_CAMPAIGNS_A_PAGE)


@router.get(
    "/lieu/{id}/campaign/{uid}", **operation("Get campaign", tag="campaign", answers="Campaign")
)
async def get_campaign(caller: Reader, venue_id: VenueId, number: RecordId) -> Response:
    """One campaign, with what it is tied to."""
    where = (
        Campaign.id == number,
        Campaign.venue_id == venue_id,
        of_company(caller.company_id),
    )
    async with caller.services.database.autocommit() as session:
        found = await campaign.campaigns(session, where, ONE)
    if not found:
        raise not_found("campaign")
    return answer(found[0])


@router.put(
    "/lieu/{id}/campaign/{uid}",
    **operation("Edit campaign", tag="campaign", answers="Campaign", body="CampaignEdit"),
)
async def edit_campaign(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """The campaign, changed. Optional fields that are not given stay as they are, ties too."""
    faults = Faults()
    values = await _values(caller, CAMPAIGN_EDIT, faults)
    raise_faults(faults)
    ties = (Campaign.beacons, Campaign.geofencings, Campaign.tags)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        record = await own_record(session, Campaign, company, venue_id, number, *ties)
        kept = {name: getattr(record, name) for name in _CHECKED_TOGETHER}
        _check_together(kept | values, Faults())
        check_content(limits, kept | values, kept)
        before = reach_of(record)
        columns = campaign_columns(values, weekdays=record.weekdays)
        for name, value in (columns | await _ties(session, company, values)).items():
            setattr(record, name, value)
        await session.flush()
        if reach_of(record).goes_beyond(before):
            await check_campaign(session, limits, company, record, caller.services.clock())
        return await _one(session, number)

    return answer(await write(caller.services, work))


@router.delete(
    "/lieu/{id}/campaign/{uid}", **operation("Delete campaign", tag="campaign", answers="Done")
)
async def delete_campaign(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Delete the campaign; it is not sent any more."""

    async def work(session: AsyncSession) -> None:
        record = await own_record(session, Campaign, caller.company_id, venue_id, number)
        await session.delete(record)

    await write(caller.services, work)
    return done()


async def _values(caller: Caller, fields: Sequence[Field], faults: Faults) -> dict[str, Any]:
    return read_values(fields, await caller.body(), faults)


def _check_together(values: Mapping[str, Any], faults: Faults) -> None:
    """Raise ApiError 400 for what was noted, and for what contradicts itself."""
    noted = {fault.place for fault in faults}
    found = campaign_conflicts(values)
    faults.extend(Fault(place, message) for place, message in found if place not in noted)
    raise_faults(faults)


async def _ties(
    session: AsyncSession, company_id: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The records behind the ties that are given."""
    finders = {"tags": find_tags, "beacons": find_beacons, "geofencings": find_geofences}
    return {
        name: await find(session, company_id, values[name])
        for name, find in finders.items()
        if name in values
    }


async def _one(session: AsyncSession, number: int) -> Record:
    return (await campaign.campaigns(session, (Campaign.id == number,), ONE))[0]
