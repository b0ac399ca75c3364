"""Formats an explanation as lines for people, and as one JSON object."""

from collections.abc import Iterable, Iterator
from typing import Any

from api.records.explanation import shown_campaign, shown_check
from catalog.plain_text import for_terminal
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.explainer import ExplainedDetection, SupposedDetection
from rules.explanation import ExplainedCampaign, ExplainedCheck
from rules.local_time import LocalClock, zone_clock
from rules.model import Reason

_NAME = max(map(len, Reason))


def explained_fields(supposed: SupposedDetection, explained: ExplainedDetection) -> dict[str, Any]:
    """The object of --json."""
    beacon, question, explanation = explained
    written = _clock(beacon).written
    uuid, major, minor = supposed.key
    beacon_fields: dict[str, Any] = {"uuid": uuid, "major": major, "minor": minor}
    if beacon is not None:
        beacon_fields = {"id": beacon.reference.id, "name": beacon.reference.name, **beacon_fields}
    venue = None if beacon is None else beacon.venue_reference
    return {
        "beacon": beacon_fields,
        "venue": None if venue is None else {"id": venue.id, "name": venue.name},
        "company": None if beacon is None else {"id": beacon.company_reference.id},
        "device": None if supposed.udid is None else {"udid": supposed.udid},
        "proximity": question.zone.name.lower(),
        "detected_at": written(question.detected_at),
        "decided_at": written(question.decided_at),
        "reason": explanation.reason.value,
        "checks": [shown_check(check) for check in explanation.checks],
        "campaigns": [shown_campaign(each) for each in explanation.campaigns],
    }


def explained_lines(supposed: SupposedDetection, explained: ExplainedDetection) -> Iterator[str]:
    """The lines: a head, the checks that all campaigns share, and each campaign."""
    for line in _lines(supposed, explained):
        yield for_terminal(line).rstrip()


def _lines(supposed: SupposedDetection, explained: ExplainedDetection) -> Iterator[str]:
    beacon, question, explanation = explained
    written = _clock(beacon).written
    triple = ":".join(map(str, supposed.key))
    where = "not in the index" if beacon is None else _place(beacon)
    yield f"beacon    {triple}, {where}"
    yield f"device    {supposed.udid or 'a new one'}, {question.zone.name.lower()}"
    decided = "decided at once"
    if question.decided_at != question.detected_at:
        decided = f"decided {written(question.decided_at)}"
    yield f"detected  {written(question.detected_at)}, {decided}"
    yield ""
    yield from _checks(explanation.checks)
    for each in explanation.campaigns:
        yield ""
        yield from _campaign(each)


def _campaign(explained: ExplainedCampaign) -> Iterator[str]:
    campaign, written = explained.campaign, explained.clock.written
    yield f"campaign {campaign.id}, {campaign.name}: {explained.reason.value}"
    yield from _checks(explained.checks)
    claim = explained.claim
    if claim is not None:
        yield f"  claim  by notification {claim.notification_id}"
    if explained.next_at is not None:
        when = "now" if explained.reason is Reason.GRANTED else written(explained.next_at)
        yield f"  next   {when}"
    elif explained.blocked_by:
        yield f"  next   whatever the time, not while: {', '.join(explained.blocked_by)}"
    else:
        yield "  next   never again: its dates are over, or it has no weekday"


def _checks(checks: Iterable[ExplainedCheck]) -> Iterator[str]:
    for check, passed, (found, needed) in checks:
        values = found if passed and found == needed else f"{found}; needed: {needed}"
        yield f"  {'ok' if passed else 'NO'}  {check.value:{_NAME}}  {values}"


def _place(beacon: IndexedBeacon) -> str:
    return f"{beacon.reference.name}, {beacon.venue_reference.name}"


def _clock(beacon: IndexedBeacon | None) -> LocalClock:
    """The venue's local time, or UTC."""
    zone = None if beacon is None else beacon.target.venue.time_zone
    return zone_clock(zone or "UTC")
