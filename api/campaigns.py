"""Campaigns: /lieu/{id}/campaign."""

from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import AliasChoices, Field, ValidationInfo, field_validator, model_validator
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.answers import Answer, Count, Id, NamedAnswer, Record, Text, TimeOfDay, Timestamp
from api.bodies import refuse
from api.permissions import PREFIX, AuthorizedCaller
from api.records import Beacons, Places, Records, Tags, Values, add_operations, with_references
from api.venues import BeaconAnswer, GeofenceAnswer
from catalog.fields import ABSENT, MINUTES, EndTime, Flag, StartTime
from catalog.inputs import CampaignFields, campaign_columns, campaign_conflicts
from catalog.limits import (
    CONTENT_FIELDS,
    check_campaign,
    check_content,
    check_venue_size,
)
from catalog.models import WEEKDAYS, Beacon, Campaign, Geofence, ScanTag

router = APIRouter(prefix=PREFIX)
_CHECKED_TOGETHER = ("format", "start", "end", "on", *CONTENT_FIELDS)


class CampaignEdit(CampaignFields):
    """A campaign with its references to other records; weekdays may be absent."""

    start_minute: Annotated[StartTime, MINUTES] = Field(validation_alias="start_time")
    end_minute: Annotated[EndTime, MINUTES] = Field(validation_alias="end_time")
    tags: Tags = ABSENT
    beacons: Beacons = ABSENT
    geofencings: Places = ABSENT
    nfcs: Places = ABSENT
    qrcodes: Places = ABSENT


class CampaignCreate(CampaignEdit):
    """A new campaign with its references to other records."""

    monday: Flag
    tuesday: Flag = Field(validation_alias=AliasChoices("tuesday", "thuesday"))
    wednesday: Flag
    thursday: Flag
    friday: Flag
    saturday: Flag
    sunday: Flag


_EXAMPLE: Record = {
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
    on: Literal["detection", "enter", "dwell", "exit"]
    dwell_minutes: int | None
    priority: Count
    ignores_caps: bool
    ignores_quiet_hours: bool
    beacons: list[BeaconAnswer]
    geofencings: list[GeofenceAnswer]
    nfcs: list[NamedAnswer]
    qrcodes: list[NamedAnswer]
    tags: list[NamedAnswer]
    warnings: list[str] = Field(
        default_factory=list, description="What keeps the campaign from being sent."
    )

    @model_validator(mode="after")
    def _warn(self) -> Self:
        if not any((self.beacons, self.geofencings, self.nfcs, self.qrcodes, self.tags)):
            self.warnings = ["it targets nothing, so it is never sent"]
        return self

    @field_validator(*WEEKDAYS, mode="before")
    @classmethod
    def _of_mask(cls, mask: int, info: ValidationInfo) -> bool:
        return bool(mask >> WEEKDAYS.index(str(info.field_name)) & 1)

    @field_validator("start_time", "end_time", mode="before")
    @classmethod
    def _of_minute(cls, minute: int) -> str:
        return f"{minute // 60:02}:{minute % 60:02}"


async def _columns(
    session: AsyncSession, caller: AuthorizedCaller, values: Values, record: Campaign | None
) -> Values:
    kept: Values = {}
    if record is not None:
        kept = {name: getattr(record, name) for name in _CHECKED_TOGETHER}
        if values.get("on", record.on) == "dwell":
            kept["dwell_minutes"] = record.dwell_minutes
        refuse(campaign_conflicts({**kept, **values}))
    check_content(caller.services.catalog_limits, {**kept, **values}, kept)
    venue_id = record.venue_id if record else values["venue_id"]
    columns = campaign_columns(values, weekdays=record.weekdays if record else 0)
    found = await with_references(session, caller, values, venue_id)
    scanned: list[ScanTag] = []
    for name in ("nfcs", "qrcodes"):
        scanned += found.get(name, getattr(record, name) if record else [])
    places = {name: found[name] for name in ("beacons", "geofencings", "tags") if name in found}
    return columns | places | {"scan_tags": scanned}


async def _check(session: AsyncSession, caller: AuthorizedCaller, campaign: Campaign) -> None:
    limits, now = caller.services.catalog_limits, caller.services.clock()
    if campaign.active:
        await check_campaign(session, limits, caller.company_id, campaign, now)


async def _check_size(session: AsyncSession, caller: AuthorizedCaller, campaign: Campaign) -> None:
    await check_venue_size(session, caller.services.catalog_limits, Campaign, campaign.venue_id)


CAMPAIGNS = Records(
    kind="campaign",
    path="/lieu/{id}/campaign",
    model=Campaign,
    answer=CampaignAnswer,
    created=CampaignCreate,
    edited=CampaignEdit,
    example=_EXAMPLE,
    about="A campaign of format connector needs no other content. The company's connector "
    "may be set up later; until then the campaign sends nothing. There are limits on the "
    "bytes of title, push, template, url and html together, on the campaigns "
    "of a venue, and on the campaigns that are open at a beacon at the same time; each "
    "refusal names the limit.",
    options=(
        selectinload(Campaign.beacons).selectinload(Beacon.tags),
        selectinload(Campaign.geofencings).selectinload(Geofence.tags),
        selectinload(Campaign.scan_tags),
        selectinload(Campaign.tags),
    ),
    page=50,  # their content is large
    conflicts=campaign_conflicts,
    columns=_columns,
    check=_check,
    check_size=_check_size,
)

add_operations(router, CAMPAIGNS)
