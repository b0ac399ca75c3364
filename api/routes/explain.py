"""Explains why a campaign fires or does not: /lieu/{id}/campaign/{uid}/explain."""

from typing import Annotated, Any

import structlog
from fastapi import APIRouter
from redis.exceptions import RedisError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import Record, answer
from api.errors import forbidden, not_found, unavailable
from api.openapi.operations import operation
from api.permissions import AREAS, AuthorizedCaller, may_read
from api.plain_route import PlainRoute
from api.records.explanation import ExplanationAnswer, shown_campaign, shown_check
from api.references import find_beacon
from api.requests import ExplainQuestion, Reference
from api.routes.parameters import PREFIX, RecordId, VenueId
from catalog.fields.company import READ
from catalog.index.one_campaign import CampaignAtBeacon, read_campaign_at_beacon
from rules.explanation import Explanation, HeldClaim, Question, explain_campaign
from rules.model import Reason, Zone

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["campaign"])
_log = structlog.get_logger(__name__)
# Checks that are left out if the campaign targets no beacon and the request names none.
_OF_A_BEACON = (Reason.UNKNOWN_BEACON, Reason.INACTIVE_BEACON)


@router.post(
    "/lieu/{id}/campaign/{uid}/explain",
    **operation("Explain campaign", ExplanationAnswer, body=ExplainQuestion),
)
async def explain_one(
    caller: Annotated[AuthorizedCaller, may_read("campaign")], venue_id: VenueId, number: RecordId
) -> Response:
    """Explain why the campaign would or would not fire for a detection, and when it would.

    The rules are the engine's; the catalog is the present one. Every field is optional: `at`
    defaults to now, `beacon` to the first active beacon that the campaign targets, `proximity` to
    the zone that this beacon requires. With `udid` the device's claim counts, and the account needs
    level 1 in the area crm too. Nothing is sent, and no claim is taken.
    """
    values = await caller.values(ExplainQuestion)
    udid = values.get("udid")
    if udid is not None and caller.account.level(AREAS["device"]) < READ:
        raise forbidden(AREAS["device"], READ)
    async with caller.services.database.autocommit() as session:
        subject = await _subject(session, caller, venue_id, number, values.get("beacon"))
    claims = {} if udid is None else await _claims(caller, udid, number)
    at = (values.get("at") or caller.services.clock()).timestamp()
    question = Question(
        zone=_zone(values.get("proximity"), subject),
        detected_at=at,
        decided_at=at,
        max_age=caller.services.max_detection_age,
        claims=claims,
    )
    explanation = explain_campaign(subject.target, subject.campaign, question)
    return answer(_shown(subject, question, explanation))


async def _subject(
    session: AsyncSession,
    caller: AuthorizedCaller,
    venue_id: int,
    number: int,
    beacon: Reference | None,
) -> CampaignAtBeacon:
    beacon_id = None
    if beacon is not None:
        beacon_id = (await find_beacon(session, caller.company_id, beacon)).id
    subject = await read_campaign_at_beacon(session, caller.company_id, venue_id, number, beacon_id)
    if subject is None:
        raise not_found("campaign")
    return subject


async def _claims(caller: AuthorizedCaller, udid: str, number: int) -> dict[int, HeldClaim]:
    try:
        return await caller.services.newest_claims(caller.company_id, udid, [number])
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("claims cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which knows the claims, does not answer; try again") from None


def _zone(named: str | None, subject: CampaignAtBeacon) -> Zone:
    if named is not None:
        return Zone[named.upper()]
    return Zone.IMMEDIATE if subject.beacon is None else subject.beacon.reach


def _shown(subject: CampaignAtBeacon, question: Question, explanation: Explanation) -> Record:
    (explained,) = explanation.campaigns
    shown: dict[str, Any] = shown_campaign(explained)
    beacon, left_out = subject.beacon, _OF_A_BEACON if subject.beacon is None else ()
    shared = [shown_check(each) for each in explanation.checks if each.check not in left_out]
    names = ("id", "name", "uuid", "major", "minor")
    return shown | {
        "at": explained.clock.written(question.detected_at),
        "proximity": question.zone.name.lower(),
        "beacon": None if beacon is None else {name: getattr(beacon, name) for name in names},
        "checks": shared + shown["checks"],
    }
