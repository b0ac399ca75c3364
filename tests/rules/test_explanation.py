"""Each check of an explanation says what it compared, and each campaign is decided alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from rules.decision import Target
from rules.explanation import (
    DeviceHistory,
    ExplainedCampaign,
    Explanation,
    HeldClaim,
    Question,
    explain,
)
from rules.model import Cap, CompanyRules, PlaceKind, QuietHours, Reason, Zone
from tests.rules.records import beacon, campaign, epoch

FRIDAY = epoch("2026-11-20T22:41:00+01:00")
PARIS = {"time_zone": "Europe/Paris"}
QUIET = CompanyRules(company_id=1, quiet_hours=QuietHours(1320, 480), time_zone="Europe/Paris")
CAPPED = CompanyRules(company_id=1, caps=(Cap(2, 7200), Cap(9, 60)))


def new_question(
    at: float = FRIDAY,
    zone: Zone = Zone.NEAR,
    claims: Mapping[int, HeldClaim] | None = None,
    decided_at: float | None = None,
    kind: PlaceKind = "beacon",
    sent: Sequence[float] = (),
    time_zone: str | None = None,
) -> Question:
    decided_at = at if decided_at is None else decided_at
    history = DeviceHistory(claims or {}, sent, time_zone)
    return Question(zone, at, decided_at, 300.0, history, kind)


def at_beacon(
    question: Question | None = None, /, rules: CompanyRules | None = None, **fields: Any
) -> Explanation:
    target = Target(beacon(), [campaign(**PARIS | fields)], False, rules)
    return explain(target, question or new_question())


def only(explanation: Explanation) -> ExplainedCampaign:
    (found,) = explanation.campaigns
    return found


def compared(explanation: Explanation, check: Reason) -> str:
    """What the check says, and whether it failed."""
    checks = (*explanation.checks, *(only(explanation).checks if explanation.campaigns else ()))
    (found,) = [each for each in checks if each.check is check]
    return f"{'ok' if found.passed else 'NO'} {found.found} | {found.needed}"


@pytest.mark.parametrize(
    ("reason", "explanation", "expected"),
    [
        (Reason.UNKNOWN_TAG, explain(None, new_question(kind="nfc")), "an NFC tag of the catalog"),
        (
            Reason.NO_CAMPAIGN,
            explain(Target(beacon(), []), new_question()),
            "no campaigns | a campaign that targets it",
        ),
        (Reason.TOO_FAR, at_beacon(new_question(zone=Zone.FAR)), "far | near or nearer"),
        (
            Reason.STALE,
            at_beacon(new_question(decided_at=FRIDAY + 422.5)),
            "7 min 3 s old | at most 5 min",
        ),
        (
            Reason.NOT_ENTERED,
            at_beacon(on="dwell", dwell_minutes=10),
            "a detection | the device has stayed for 10 min",
        ),
        (
            Reason.THROTTLED,
            at_beacon(new_question(claims={1: HeldClaim("x", FRIDAY - 2788)}), delay=3600),
            "T21:54:32+0100, 13 min 32 s left | at least 1 h between two sends",
        ),
        (
            Reason.QUIET_HOURS,
            at_beacon(rules=QUIET),
            "quiet until 2026-11-21T08:00:00+0100 | not 22:00 to 08:00, every day",
        ),
        (
            Reason.CAPPED,
            at_beacon(new_question(sent=(FRIDAY - 7000, FRIDAY - 60)), rules=CAPPED),
            "capped until 2026-11-20T22:44:20+0100 | at most 2 within 2 h",
        ),
    ],
)
def test_a_failed_check_says_what_it_compared(
    reason: Reason, explanation: Explanation, expected: str
) -> None:
    assert explanation.reason is reason
    said = compared(explanation, reason)
    assert said.startswith("NO ")
    assert said.endswith(expected)


def test_the_checks_after_the_first_failure_are_listed() -> None:
    explanation = at_beacon(new_question(zone=Zone.FAR, decided_at=FRIDAY + 301), active=False)
    checks = (*explanation.checks, *only(explanation).checks)
    failed = [each.check for each in checks if not each.passed]
    assert failed == [Reason.TOO_FAR, Reason.STALE, Reason.INACTIVE]
    assert only(explanation).blocked_by == (Reason.TOO_FAR, Reason.INACTIVE)


def test_the_hours_and_caps_that_a_campaign_ignores_are_no_checks() -> None:
    rules = msgspec.structs.replace(QUIET, caps=CAPPED.caps)
    explanation = at_beacon(
        new_question(sent=(FRIDAY - 9, FRIDAY - 3)),
        rules,
        ignores_caps=True,
        ignores_quiet_hours=True,
    )
    assert only(explanation).reason is Reason.GRANTED
    checks = {each.check for each in only(explanation).checks}
    assert checks.isdisjoint({Reason.QUIET_HOURS, Reason.CAPPED})
    free = at_beacon(new_question(epoch("2026-11-20T12:00:00Z")), rules)
    assert compared(free, Reason.QUIET_HOURS) == "ok not quiet | not 22:00 to 08:00, every day"
    assert compared(free, Reason.CAPPED) == (
        "ok not capped | at most 2 within 2 h, at most 9 within 1 min"
    )


def test_the_next_moment_is_after_the_quiet_hours_and_within_the_caps() -> None:
    rules = msgspec.structs.replace(QUIET, caps=(Cap(1, 36_000),))
    assert only(at_beacon(rules=rules)).next_at == epoch("2026-11-21T08:00:00+01:00")
    question = new_question(sent=(FRIDAY - 60,))
    assert only(at_beacon(question, rules)).next_at == epoch("2026-11-21T08:40:00+01:00")
    elsewhere = new_question(sent=(FRIDAY - 60,), time_zone="America/New_York")
    assert only(at_beacon(elsewhere, rules)).reason is Reason.CAPPED
    assert only(at_beacon(elsewhere, rules)).next_at == epoch("2026-11-21T13:00:00+00:00")
