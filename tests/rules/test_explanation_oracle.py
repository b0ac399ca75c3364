"""Explanations agree with live decisions, and the next moment is really the first one."""

import os
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rules.explanation import (
    DeviceHistory,
    ExplainedCampaign,
    Explanation,
    HeldClaim,
    Question,
    explain,
)
from rules.model import Reason
from tests.rules.campaigns import DAY
from tests.rules.test_decision_oracle import MAX_AGE, Case, cases, fate, refusal

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
