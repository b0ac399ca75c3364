"""Campaigns: /lieu/{id}/campaign."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field, ValidationInfo, field_validator
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.answers import Answer, Id, NamedAnswer, Text, Timestamp
from api.bodies import RecordId, VenueId, accepts, raise_faults
from api.permissions import PREFIX, AuthorizedCaller, may_write
from api.tenancy import (
    Beacons,
    Geofences,
    Query,
    Tags,
    add_shared_operations,
    assign,
    find,
    find_referenced,
    find_venue,
    of_company,
    write,
    written,
)
from api.venues import BeaconAnswer, GeofenceAnswer
from catalog.fields import ABSENT, FieldFault, required
from catalog.inputs import REFERENCES, CampaignFields, campaign_columns, campaign_conflicts
from catalog.limits import (
    CONTENT_FIELDS,
    check_campaign,
    check_content,
    check_venue_size,
    lock_company,
    scope_of,
)
from catalog.models import WEEKDAYS, Beacon, Campaign

router = APIRouter(prefix=PREFIX + "/lieu/{id}/campaign")
Writer = Annotated[AuthorizedCaller, may_write("campaign")]
_CHECKED_TOGETHER = ("format", "start", "end", *CONTENT_FIELDS)
PAGE = 50  # campaigns: their content is large


@required("start_minute", "end_minute")
class CampaignEdit(CampaignFields):
    """A campaign with its references to other records; weekdays may be absent."""

    tags: Tags = ABSENT
    beacons: Beacons = ABSENT
    geofencings: Geofences = ABSENT


@required(*WEEKDAYS)
class CampaignCreate(CampaignEdit):
    """A new campaign with its references to other records."""


_EXAMPLE = {
    "name": "New books",
    "push": "Fresh this week, right next to you.",
    "title": "New on the shelves",
    "format": "url",
    "url": "https://library.example/new-books",
    "cache": "day",
    "start": "2026-11-20T00:00:00+0100",
    "end": "2027-11-20T00:00:00+0100",
    "start_time": "09:00",
    "end_time": "20:00",
    "active": True,
    **dict.fromkeys(WEEKDAYS, True),
    "tags": [{"name": "study"}],
}
TimeOfDay = Annotated[str, Field(pattern=r"^\d\d:\d\d$", examples=["09:00"])]
_OF_MASK: Any = Field(validation_alias="weekdays")


class CampaignAnswer(Answer):
    id: Id
    name: str
    hash: Text
    push: str
    title: str
    format: Literal["template", "url", "html", "connector"]
    template: Text
    url: Text
    html: Text
    background: Text
    color: Text
    cache: str
    start: Timestamp
    end: Timestamp
    start_time: TimeOfDay = Field(validation_alias="start_minute")
    end_time: TimeOfDay = Field(validation_alias="end_minute")
    active: bool
    monday: bool = _OF_MASK
    tuesday: bool = _OF_MASK
    wednesday: bool = _OF_MASK
    thursday: bool = _OF_MASK
    friday: bool = _OF_MASK
    saturday: bool = _OF_MASK
    sunday: bool = _OF_MASK
    beacons: list[BeaconAnswer]
    geofencings: list[GeofenceAnswer]
    nfcs: list[Any]
    qrcodes: list[Any]
    tags: list[NamedAnswer]

    @field_validator(*WEEKDAYS, mode="before")
    @classmethod
    def _of_mask(cls, mask: int, info: ValidationInfo) -> bool:
        return bool(mask >> WEEKDAYS.index(str(info.field_name)) & 1)

    @field_validator("start_time", "end_time", mode="before")
    @classmethod
    def _of_minute(cls, minute: int) -> str:
        return f"{minute // 60:02}:{minute % 60:02}"


@router.post(
    "", tags=["campaign"], status_code=201, openapi_extra=accepts(CampaignCreate, _EXAMPLE)
)
async def create_campaign(caller: Writer, venue_id: VenueId) -> CampaignAnswer:
    """Create a campaign of the venue.

    A campaign of format connector needs no other content. The company's connector may be set up
    later; until then the campaign sends nothing. There are limits on the bytes of title, push,
    template, url, html, nfcs and qrcodes together, on the campaigns of a venue, and on the
    campaigns that are open at a beacon at the same time; each refusal names the limit.
    """
    values = await caller.values(CampaignCreate, campaign_conflicts)

    async def work(session: AsyncSession) -> CampaignAnswer:
        company, limits = caller.company_id, caller.services.catalog_limits
        check_content(limits, values, {})
        await lock_company(session, company)
        await find_venue(session, company, venue_id, lock=True)
        columns = campaign_columns(values, weekdays=0)
        columns |= await _referred(session, company, values)
        record = Campaign(**columns, venue_id=venue_id)
        session.add(record)
        await session.flush()
        await check_venue_size(session, limits, Campaign, venue_id)
        if record.active:
            await check_campaign(session, limits, company, record, caller.services.clock())
        found = await written(session, _campaigns(caller, venue_id), record.id)
        return CampaignAnswer.model_validate(found)

    return await write(caller.services, work)


@router.put("/{uid}", tags=["campaign"], openapi_extra=accepts(CampaignEdit, _EXAMPLE))
async def edit_campaign(caller: Writer, venue_id: VenueId, number: RecordId) -> CampaignAnswer:
    """Change a campaign. Optional fields and references that are not given stay as they are."""
    values = await caller.values(CampaignEdit)
    query = _campaigns(caller, venue_id)

    async def work(session: AsyncSession) -> CampaignAnswer:
        company, limits = caller.company_id, caller.services.catalog_limits
        await lock_company(session, company)
        record = await find(session, query, number, lock=True)
        kept = {name: getattr(record, name) for name in _CHECKED_TOGETHER}
        raise_faults([FieldFault(*conflict) for conflict in campaign_conflicts(kept | values)])
        check_content(limits, kept | values, kept)
        before = scope_of(record)
        columns = campaign_columns(values, weekdays=record.weekdays)
        assign(record, columns | await _referred(session, company, values))
        await session.flush()
        if scope_of(record).goes_beyond(before):
            await check_campaign(session, limits, company, record, caller.services.clock())
        return CampaignAnswer.model_validate(await written(session, query, number))

    return await write(caller.services, work)


def _campaigns(caller: AuthorizedCaller, venue_id: int) -> Query[Campaign]:
    return of_company(Campaign, caller.company_id, venue_id).options(
        selectinload(Campaign.beacons).selectinload(Beacon.tags),
        selectinload(Campaign.geofencings),
        selectinload(Campaign.tags),
    )


add_shared_operations(router, "", "campaign", _campaigns, CampaignAnswer, PAGE)


async def _referred(
    session: AsyncSession, company_id: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The records that the references name, by attribute."""
    return {
        name: await find_referenced(session, company_id, name, values[name])
        for name in REFERENCES
        if name in values
    }
