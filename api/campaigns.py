"""Campaigns, and why one fires or does not: /lieu/{id}/campaign."""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import AliasChoices, Field, ValidationInfo, field_validator, model_validator
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.answers import (
    Answer,
    ApiError,
    Count,
    NamedAnswer,
    ReasonName,
    Record,
    Text,
    TimeOfDay,
    Timestamp,
    ZoneName,
    bad_fields,
    forbidden,
    not_found,
)
from api.bodies import FromOne, RecordId, VenueId, accepts, refuse
from api.permissions import AREA_OF, PREFIX, Caller, may_read
from api.records import (
    IN_ORDER,
    Beacons,
    ById,
    ByTriple,
    Places,
    Records,
    Scope,
    Tags,
    Values,
    add_operations,
    find_referenced,
    with_references,
)
from api.venues import BeaconAnswer, ExplainedBeaconAnswer, GeofenceAnswer
from catalog import inputs
from catalog.fields import ABSENT, Fields
from catalog.index import reading
from catalog.limits import CONTENT_FIELDS, check_content, check_open_campaigns, check_venue_size
from catalog.models import WEEKDAYS, Beacon, Campaign, Device, Geofence, ScanTag
from rules.explanation import (
    DeviceHistory,
    ExplainedCampaign,
    ExplainedCheck,
    Question,
    explain_campaign,
)
from rules.model import Reason, Zone

router = APIRouter(prefix=PREFIX)
_CHECKED_TOGETHER = ("format", "start", "end", "on", *CONTENT_FIELDS)


class CampaignEdit(inputs.CampaignFields):
    """A campaign with its references to other records; weekdays may be absent."""

    start_minute: Annotated[inputs.StartTime, inputs.MINUTES] = Field(validation_alias="start_time")
    end_minute: Annotated[inputs.EndTime, inputs.MINUTES] = Field(validation_alias="end_time")
    tags: Tags = ABSENT
    beacons: Beacons = ABSENT
    geofencings: Places = ABSENT
    nfcs: Places = ABSENT
    qrcodes: Places = ABSENT


class CampaignCreate(CampaignEdit):
    """A new campaign with its references to other records."""

    monday: inputs.Flag
    tuesday: inputs.Flag = Field(validation_alias=AliasChoices("tuesday", "thuesday"))
    wednesday: inputs.Flag
    thursday: inputs.Flag
    friday: inputs.Flag
    saturday: inputs.Flag
    sunday: inputs.Flag


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


class CampaignAnswer(NamedAnswer):
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
    session: AsyncSession, scope: Scope, values: Values, record: Campaign | None
) -> Values:
    kept: Values = {}
    if record is not None:
        kept = {name: getattr(record, name) for name in _CHECKED_TOGETHER}
        if values.get("on", record.on) == "dwell":
            kept["dwell_minutes"] = record.dwell_minutes
    refuse(inputs.campaign_conflicts({**kept, **values}))
    check_content(scope.caller.services.catalog_limits, {**kept, **values})
    columns = inputs.campaign_columns(values, weekdays=record.weekdays if record else 0)
    found = await with_references(session, scope, values)
    scanned: list[ScanTag] = []
    for name in ("nfcs", "qrcodes"):
        scanned += found.get(name, getattr(record, name) if record else [])
    places = {name: found[name] for name in ("beacons", "geofencings", "tags") if name in found}
    return columns | places | {"scan_tags": scanned}


async def _check(
    session: AsyncSession, scope: Scope, campaigns: Sequence[Campaign], added: bool
) -> None:
    services, (campaign,) = scope.caller.services, campaigns
    limits, company = services.catalog_limits, scope.caller.company_id
    if added:
        await check_venue_size(session, limits, Campaign, campaign.venue_id)
    if campaign.active:
        reached = reading.targeted_by([campaign.id])
        await check_open_campaigns(session, limits, company, services.clock(), reached)


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
    "of a venue, and on the campaigns of a beacon that have not ended; each "
    "refusal names the limit.",
    options=(
        selectinload(Campaign.beacons).selectinload(Beacon.tags),
        selectinload(Campaign.geofencings).selectinload(Geofence.tags),
        selectinload(Campaign.scan_tags),
        selectinload(Campaign.tags),
    ),
    page=50,  # their content is large
    columns=_columns,
    check=_check,
)

add_operations(router, CAMPAIGNS)

# The places that a request may name: the fields of campaigns that list them, and their tables.
_PLACES = {
    "beacon": ("beacons", reading.BEACONS),
    "geofence": ("geofencings", reading.GEOFENCES),
    "nfc": ("nfcs", reading.SCAN_TAGS),
    "qrcode": ("qrcodes", reading.SCAN_TAGS),
}
PlaceById = Annotated[ById | FromOne, IN_ORDER, Field(description="instead of a beacon: by its id")]


class ExplainQuestion(Fields):
    """The detection that a campaign is explained for; every field may be absent."""

    at: inputs.Instant = Field(ABSENT, json_schema_extra={"description": "Default: now."})
    beacon: Annotated[
        ById | ByTriple | FromOne,
        IN_ORDER,
        Field(description="a beacon by id, or by uuid, major and minor"),
    ] = ABSENT
    geofence: PlaceById = ABSENT
    nfc: PlaceById = ABSENT
    qrcode: PlaceById = ABSENT
    proximity: Annotated[Literal["immediate", "near", "far", "unknown"], inputs.LOWER] = ABSENT
    udid: inputs.Name = ABSENT


class CheckAnswer(Answer):
    check: Reason = Field(description="The check, named by the reason of its refusals.")
    passed: bool
    found: str
    needed: str


class ClaimAnswer(Answer):
    notification: str = Field(description="The id of the notification that holds the claim.")
    detected_at: Timestamp
    ends_at: Timestamp = Field(
        description="The end of the claim: before it the campaign is not sent to the device."
    )


class ExplanationAnswer(Answer):
    at: Timestamp
    proximity: ZoneName
    beacon: ExplainedBeaconAnswer | None = Field(
        description="null for another place, and if the campaign targets none."
    )
    geofence: NamedAnswer | None = None
    nfc: NamedAnswer | None = None
    qrcode: NamedAnswer | None = None
    campaign: NamedAnswer
    reason: ReasonName = Field(description="granted, or the first check that fails.")
    checks: list[CheckAnswer] = Field(description="Every check, in order.")
    claim: ClaimAnswer | None = Field(description="The newest claim of the device on the campaign.")
    next_at: Timestamp | None = Field(
        description="The first moment, from `at` on, at which it would fire, as far as is known "
        "now; null if there is none."
    )
    blocked_by: list[Reason] = Field(
        description="If `next_at` is null: the checks that fail at any time."
    )


@router.post(
    "/lieu/{id}/campaign/{uid}/explain",
    tags=["campaign"],
    response_model=ExplanationAnswer,
    openapi_extra=accepts(ExplainQuestion, {"at": "2026-11-21T23:30:00+0100", "proximity": "near"}),
)
async def explain_campaign_of_venue(
    caller: Annotated[Caller, may_read("campaign")], venue_id: VenueId, number: RecordId
) -> Any:
    """Explain why the campaign would or would not fire for a detection, and when it would.

    The rules are the engine's; the catalog is the present one. Every field is optional: `at`
    defaults to now, the place to the first active one that the campaign targets, beacons first,
    `proximity` to the zone that this beacon requires. With `udid` the device's claim, its time zone
    and what it was sent count, and the account needs level 1 in the area crm too. Nothing is sent,
    and no claim is taken.
    """
    services, company = caller.services, caller.company_id
    values = await caller.values(ExplainQuestion)
    udid = values.get("udid")
    if udid is not None and caller.account.level(AREA_OF["device"]) < inputs.READ:
        raise forbidden(AREA_OF["device"], inputs.READ)
    async with services.database.read() as session:
        chosen = await _place(session, caller, values)
        device = select(Device.time_zone).filter_by(company_id=company, udid=udid)
        time_zone = await session.scalar(device)
        subject = await reading.read_campaign_at_place(session, company, venue_id, number, chosen)
    if subject is None:
        raise not_found("campaign")
    campaign, place, target = subject
    history = DeviceHistory()
    if udid is not None:
        history = await services.device_history(company, udid, [number])
    at = (values.get("at") or services.clock()).timestamp()
    zone = getattr(place, "reach", Zone.IMMEDIATE)
    if "proximity" in values:
        zone = Zone[values["proximity"].upper()]
    question = Question(
        zone=zone,
        detected_at=at,
        decided_at=at,
        max_age=services.max_detection_age,
        history=history._replace(time_zone=time_zone),
    )
    explanation = explain_campaign(target, campaign, question)
    (explained,) = explanation.campaigns
    checks = [*explanation.checks, *explained.checks]
    if place is None:  # nothing can be said about it
        of_place = (Reason.UNKNOWN_GEOFENCE, Reason.INACTIVE_GEOFENCE)
        checks = [each for each in checks if each.check not in of_place]
    return shown_campaign(explained) | {
        "at": explained.clock.written(at),
        "proximity": zone.name.lower(),
        "beacon": None,
        **({} if place is None else {str(place.kind): place}),
        "checks": checks,
    }


async def _place(
    session: AsyncSession, caller: Caller, values: Values
) -> tuple[reading.PlaceTable, int] | None:
    given = [kind for kind in _PLACES if kind in values]
    if len(given) > 1:
        raise bad_fields({given[1]: f"accepted: one place; there is {given[0]} already"})
    for kind in given:
        field, table = _PLACES[kind]
        try:
            (found,) = await find_referenced(session, Scope(caller), field, [values[kind]])
        except ApiError:
            message = f"{values[kind]}: not a {kind} of this company"
            raise bad_fields({kind: message}) from None
        return table, int(found.id)
    return None


def shown_check(check: ExplainedCheck) -> Record:
    """One check, as the interface and `proximity explain --json` show it."""
    return check._asdict() | {"check": check.check.value}


def shown_campaign(explained: ExplainedCampaign) -> Record:
    """The outcome of one campaign, with its own checks; times are in its local time."""
    written, claim = explained.clock.written, None
    if (held := explained.claim) is not None:
        claim = {
            "notification": held.notification_id,
            "detected_at": written(held.detected_at),
            "ends_at": written(ceil(held.detected_at + explained.campaign.delay)),
        }
    return {
        "campaign": {"id": explained.campaign.id, "name": explained.campaign.name},
        "reason": explained.reason.value,
        "checks": [shown_check(check) for check in explained.checks],
        "claim": claim,
        "next_at": None if explained.next_at is None else written(explained.next_at),
        "blocked_by": [reason.value for reason in explained.blocked_by],
    }
