"""Each check of an explanation says what it compared, and each campaign is decided alone; they
agree with live decisions, and the next moment is really the first one."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from tests.rules.campaigns import DAY
from tests.rules.records import beacon, campaign, epoch
from tests.rules.test_decision_oracle import MAX_AGE, Case, cases, fate, refusal

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


CASES = 10_000 if "PROXIMITY_TEST_FULL" in os.environ else 150
BY_TIME = ("stale", "future", "not_started", "ended", "wrong_weekday", "outside_hours", "throttled")


def question(case: Case) -> Question:
    claims = {number: HeldClaim("an owner", at) for number, at in case.held.items()}
    return Question(case.zone, case.t, case.now, MAX_AGE, DeviceHistory(claims), case.kind)


def first_failed(explanation: Explanation, campaign: ExplainedCampaign | None) -> str:
    checks = (*explanation.checks, *(campaign.checks if campaign else ()))
    return next((each.check.value for each in checks if not each.passed), "granted")


@settings(max_examples=CASES)
@given(cases())
def test_explain_agrees_with_live_decisions(case: Case) -> None:
    live = case.decision()
    explanation = explain(case.target(), question(case))
    assert explanation.reason is live.reason
    refused = refusal(case)
    for each in explanation.campaigns:
        expected = refused or fate(each.campaign, case)
        assert each.reason.value == expected == first_failed(explanation, each)
    if refused:
        assert first_failed(explanation, None) == refused
        return
    counts = Counter(each.reason for each in explanation.campaigns)
    assert counts.pop(Reason.GRANTED, 0) == len(live.granted)
    assert counts == dict(live.tally.outcomes)


@settings(max_examples=CASES)
@given(cases(), st.data())
def test_the_next_moment_is_the_next(case: Case, data: st.DataObject) -> None:
    for each in explain(case.target(), question(case)).campaigns:
        if each.next_at is None:
            assert_never(case, each, data)
            continue
        assert each.blocked_by == ()
        assert reason_at(case, each, each.next_at) == "granted"
        stale = not case.now - MAX_AGE <= case.t <= case.now + MAX_AGE
        origin = case.now if stale else case.t
        if each.next_at == origin:
            assert stale or each.reason is Reason.GRANTED
            continue
        assert each.next_at > origin
        assert each.next_at == each.next_at // 1
        between = int(each.next_at - origin)
        for share in [1, *data.draw(st.lists(st.integers(1, max(1, between)), max_size=4))]:
            assert reason_at(case, each, each.next_at - share) != "granted"


def assert_never(case: Case, each: ExplainedCampaign, data: st.DataObject) -> None:
    """Checks that fail at any time are named; if none is, no tried moment fires."""
    assert set(each.blocked_by).isdisjoint(map(Reason, BY_TIME))
    wait = data.draw(st.integers(0, 40 * DAY))
    assert reason_at(case, each, max(case.t, case.now) + wait) != "granted"


def reason_at(case: Case, each: ExplainedCampaign, moment: float) -> str:
    """At another moment, explain and a trigger decide alike, and the oracle confirms it.

    For one campaign only: each campaign has a next moment of its own.
    """
    at_that = Case(**{**vars(case), "t": moment, "now": moment, "campaigns": (each.campaign,)})
    requested = question(at_that)
    (again,) = explain(at_that.target(), requested).campaigns
    expected = refusal(at_that) or fate(each.campaign, at_that)
    assert again.reason.value == requested.decide(at_that.target()).reason.value == expected
    return expected
