"""Campaigns: /lieu/{id}/campaign."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import DoneAnswer, Record, answer
from api.body import raise_faults
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read, may_write
from api.plain_route import PlainRoute
from api.records.campaign import CAMPAIGNS, CampaignAnswer
from api.references import find_beacons, find_geofences, find_tags
from api.requests import CampaignCreate, CampaignEdit
from api.retrieval import After, Limit, listed, one
from api.routes.parameters import PREFIX, RecordId, VenueId
from api.tenancy import lock_record, lock_venue
from api.writing import assign, delete_in_venue, write, written
from catalog.fields.base import FieldFault
from catalog.fields.campaign import campaign_columns, campaign_conflicts
from catalog.limits import CONTENT_FIELDS, check_content, check_venue_size, lock_company
from catalog.models import Campaign
from catalog.open_campaigns import check_campaign, scope_of

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["campaign"])
Writer = Annotated[AuthorizedCaller, may_write("campaign")]
Reader = Annotated[AuthorizedCaller, may_read("campaign")]
_CHECKED_TOGETHER = ("format", "start", "end", *CONTENT_FIELDS)
_CAMPAIGNS_A_PAGE = 50


@router.post(
    "/lieu/{id}/campaign",
    **operation("Create campaign", CampaignAnswer, body=CampaignCreate, status=201),
)
async def create_campaign(caller: Writer, venue_id: VenueId) -> Response:
    """Create a campaign of the venue.

    A campaign of format connector needs no other content. The company's connector may be set up
    later; until then the campaign sends nothing. There are limits on the bytes of title, push,
    template, url, html, nfcs and qrcodes together, on the campaigns of a venue, and on the
    campaigns that are open at a beacon at the same time; each refusal names the limit.
    """
    values = await caller.values(CampaignCreate, campaign_conflicts)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        check_content(limits, values, {})
        await lock_company(session, company)
        await lock_venue(session, company, venue_id)
        columns = campaign_columns(values, weekdays=0)
        columns |= await _referred(session, company, values)
        record = Campaign(**columns, venue_id=venue_id)
        session.add(record)
        await session.flush()
        await check_venue_size(session, limits, Campaign, venue_id)
        if record.active:
            await check_campaign(session, limits, company, record, caller.services.clock())
        return await written(session, caller, CAMPAIGNS, venue=venue_id, id=record.id)

    return answer(await write(caller.services, work), 201)


@router.get("/lieu/{id}/campaign", **operation("List campaigns", list[CampaignAnswer]))
async def list_campaigns(
    caller: Reader, venue_id: VenueId, limit: Limit = None, after: After = 0
) -> Response:
    """The campaigns of the venue."""
    return await listed(
        caller, CAMPAIGNS, after=after, limit=limit, page=_CAMPAIGNS_A_PAGE, venue=venue_id
    )


@router.get("/lieu/{id}/campaign/{uid}", **operation("Get campaign", CampaignAnswer))
async def get_campaign(caller: Reader, venue_id: VenueId, number: RecordId) -> Response:
    """One campaign, with the records that it refers to."""
    return await one(caller, CAMPAIGNS, venue=venue_id, id=number)


@router.put(
    "/lieu/{id}/campaign/{uid}", **operation("Edit campaign", CampaignAnswer, body=CampaignEdit)
)
async def edit_campaign(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Change a campaign. Optional fields and references that are not given stay as they are."""
    values = await caller.values(CampaignEdit)
    relations = (Campaign.beacons, Campaign.geofencings, Campaign.tags)

    async def work(session: AsyncSession) -> Record:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        record = await lock_record(session, Campaign, company, venue_id, number, *relations)
        kept = {name: getattr(record, name) for name in _CHECKED_TOGETHER}
        raise_faults([FieldFault(*conflict) for conflict in campaign_conflicts(kept | values)])
        check_content(limits, kept | values, kept)
        before = scope_of(record)
        columns = campaign_columns(values, weekdays=record.weekdays)
        assign(record, columns | await _referred(session, company, values))
        await session.flush()
        if scope_of(record).goes_beyond(before):
            await check_campaign(session, limits, company, record, caller.services.clock())
        return await written(session, caller, CAMPAIGNS, venue=venue_id, id=number)

    return answer(await write(caller.services, work))


@router.delete("/lieu/{id}/campaign/{uid}", **operation("Delete campaign", DoneAnswer))
async def delete_campaign(caller: Writer, venue_id: VenueId, number: RecordId) -> Response:
    """Delete the campaign. Triggers no longer send it."""
    return await delete_in_venue(caller, Campaign, venue_id, number)


async def _referred(
    session: AsyncSession, company_id: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The records that the references name, by attribute."""
    finders = {"tags": find_tags, "beacons": find_beacons, "geofencings": find_geofences}
    return {
        name: await find(session, company_id, values[name])
        for name, find in finders.items()
        if name in values
    }
