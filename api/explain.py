"""Explains why a campaign fires or does not: /lieu/{id}/campaign/{uid}/explain."""

from math import ceil
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import (
    REASONS,
    Answer,
    ApiError,
    Count,
    Id,
    NamedAnswer,
    ReasonName,
    Record,
    Timestamp,
    ZoneName,
    bad_fields,
    forbidden,
    not_found,
)
from api.bodies import RecordId, VenueId, accepts
from api.permissions import AREAS, PREFIX, AuthorizedCaller, may_read
from api.records import IN_ORDER, ById, ByTriple, Values, find_referenced
from api.records import Id as ReferenceId
from catalog.fields import ABSENT, LOWER, Fields, Instant, Name
from catalog.index.reading import (
    BEACONS,
    GEOFENCES,
    SCAN_TAGS,
    CampaignAtPlace,
    PlaceTable,
    read_campaign_at_place,
)
from catalog.inputs import READ
from catalog.models import Device
from rules.explanation import (
    DeviceHistory,
    ExplainedCampaign,
    ExplainedCheck,
    Explanation,
    Question,
    explain_campaign,
)
from rules.model import BeaconSnapshot, Reason, Zone

router = APIRouter(prefix=PREFIX + "/lieu/{id}/campaign/{uid}/explain", tags=["campaign"])
# The places that a request may name: the fields of campaigns that list them, and their tables.
_PLACES = {
    "beacon": ("beacons", BEACONS),
    "geofence": ("geofencings", GEOFENCES),
    "nfc": ("nfcs", SCAN_TAGS),
    "qrcode": ("qrcodes", SCAN_TAGS),
}
# Checks that are left out if the campaign targets no place and the request names none.
_OF_A_BEACON = (Reason.UNKNOWN_BEACON, Reason.INACTIVE_BEACON)
_CHECKS = [reason for reason in REASONS if reason != Reason.GRANTED]
CheckName = Annotated[str, Field(json_schema_extra={"enum": list(_CHECKS)})]


_BY_ID: Any = Field(description="instead of a beacon: by its id")


class ExplainQuestion(Fields):
    """The detection that a campaign is explained for; every field may be absent."""

    at: Instant = Field(ABSENT, json_schema_extra={"description": "Default: now."})
    beacon: Annotated[
        ById | ByTriple | ReferenceId,
        IN_ORDER,
        Field(description="a beacon by id, or by uuid, major and minor"),
    ] = ABSENT
    geofence: Annotated[ById | ReferenceId, IN_ORDER, _BY_ID] = ABSENT
    nfc: Annotated[ById | ReferenceId, IN_ORDER, _BY_ID] = ABSENT
    qrcode: Annotated[ById | ReferenceId, IN_ORDER, _BY_ID] = ABSENT
    proximity: Annotated[Literal["immediate", "near", "far", "unknown"], LOWER] = ABSENT
    udid: Name = ABSENT


class CheckAnswer(Answer):
    check: CheckName = Field(description="The check, named by the reason of its refusals.")
    passed: bool
    found: str
    needed: str


class ExplainedBeaconAnswer(Answer):
    id: Id
    name: str
    uuid: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    major: Count
    minor: Count


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
    blocked_by: list[CheckName] = Field(
        description="If `next_at` is null: the checks that fail at any time."
    )


@router.post(
    "",
    openapi_extra=accepts(ExplainQuestion, {"at": "2026-11-21T23:30:00+0100", "proximity": "near"}),
)
async def explain_campaign_of_venue(
    caller: Annotated[AuthorizedCaller, may_read("campaign")], venue_id: VenueId, number: RecordId
) -> ExplanationAnswer:
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
    if udid is not None and caller.account.level(AREAS["device"]) < READ:
        raise forbidden(AREAS["device"], READ)
    async with services.database.autocommit() as session:
        place = await _place(session, company, values)
        device = select(Device.time_zone).filter_by(company_id=company, udid=udid)
        time_zone = await session.scalar(device)
        subject = await read_campaign_at_place(session, company, venue_id, number, place)
    if subject is None:
        raise not_found("campaign")
    history = DeviceHistory()
    if udid is not None:
        history = await services.device_history(company, udid, [number])
    at = (values.get("at") or services.clock()).timestamp()
    question = Question(
        zone=_zone(values.get("proximity"), subject),
        detected_at=at,
        decided_at=at,
        max_age=services.max_detection_age,
        claims=history.claims,
        sent=history.sent,
        time_zone=time_zone,
    )
    explanation = explain_campaign(subject.target, subject.campaign, question)
    return ExplanationAnswer(**_shown(subject, question, explanation))


async def _place(
    session: AsyncSession, company_id: int, values: Values
) -> tuple[PlaceTable, int] | None:
    given = [kind for kind in _PLACES if kind in values]
    if len(given) > 1:
        raise bad_fields({given[1]: f"accepted: one place; there is {given[0]} already"})
    for kind in given:
        field, table = _PLACES[kind]
        try:
            (found,) = await find_referenced(session, company_id, field, [values[kind]])
        except ApiError:
            message = f"{values[kind]}: not a {kind} of this company"
            raise bad_fields({kind: message}) from None
        return table, int(found.id)
    return None


def _zone(named: str | None, subject: CampaignAtPlace) -> Zone:
    if named is not None:
        return Zone[named.upper()]
    return subject.place.reach if isinstance(subject.place, BeaconSnapshot) else Zone.IMMEDIATE


def _shown(subject: CampaignAtPlace, question: Question, explanation: Explanation) -> Record:
    (explained,) = explanation.campaigns
    shown: dict[str, Any] = shown_campaign(explained)
    place, left_out = subject.place, _OF_A_BEACON if subject.place is None else ()
    shared = [shown_check(each) for each in explanation.checks if each.check not in left_out]
    is_beacon = isinstance(place, BeaconSnapshot)
    names = (ExplainedBeaconAnswer if is_beacon else NamedAnswer).model_fields
    named: Record = (
        {} if place is None else {place.kind: {name: getattr(place, name) for name in names}}
    )
    return shown | {
        "at": explained.clock.written(question.detected_at),
        "proximity": question.zone.name.lower(),
        "beacon": None,
        **named,
        "checks": shared + shown["checks"],
    }


def shown_check(check: ExplainedCheck) -> Record:
    """One check, as the interface and `proximity explain --json` show it."""
    return check._asdict() | {"check": check.check.value}


def shown_campaign(explained: ExplainedCampaign) -> Record:
    """The outcome of one campaign, with its own checks; times are in its local time."""
    claim, written = explained.claim, explained.clock.written
    return {
        "campaign": {"id": explained.campaign.id, "name": explained.campaign.name},
        "reason": explained.reason.value,
        "checks": [shown_check(check) for check in explained.checks],
        "claim": None
        if claim is None
        else {
            "notification": claim.notification_id,
            "detected_at": written(claim.detected_at),
            "ends_at": written(ceil(explained.claim_ends_at or claim.detected_at)),
        },
        "next_at": None if explained.next_at is None else written(explained.next_at),
        "blocked_by": [reason.value for reason in explained.blocked_by],
    }
