"""The first moment at which a campaign would fire."""

from datetime import datetime
from typing import Any

import pytest

from rules.decision import Target
from rules.explanation import (
    HeldClaim,
    awake,
    explain,
)
from rules.model import Reason
from tests.rules.questions import FRIDAY, at_beacon, new_question, only
from tests.rules.records import beacon, campaign, epoch


@pytest.mark.parametrize(
    ("fields", "claimed", "at"),
    [
        ({}, None, "2026-11-20T22:41:00+01:00"),
        ({"start_minute": 540, "end_minute": 1140}, None, "2026-11-21T09:00:00+01:00"),
        ({"weekdays": 0b0000001}, None, "2026-11-23T00:00:00+01:00"),
        ({"delay": 3600}, FRIDAY - 99.5, "2026-11-20T23:39:21+01:00"),
        ({"delay": 86_400, "start_minute": 540}, FRIDAY, "2026-11-21T22:41:00+01:00"),
        ({"delay": 86_400, "end_minute": 600}, FRIDAY, "2026-11-22T00:00:00+01:00"),
        ({"weekdays": 0}, None, None),
        ({"delay": 86_400 * 60}, FRIDAY, None),
    ],
)
def test_the_next_moment(fields: dict[str, Any], claimed: float | None, at: str | None) -> None:
    claims = {} if claimed is None else {1: HeldClaim("x", claimed)}
    found = only(at_beacon(new_question(claims=claims), **fields))
    assert found.next_at == (None if at is None else epoch(at))
    assert found.blocked_by == ()


def test_a_campaign_far_ahead_sleeps_until_then() -> None:
    start = datetime.fromisoformat("2027-01-01T00:00:00+01:00")
    explanation = at_beacon(start=start, end=start, asleep=True)
    assert only(explanation).next_at == start.timestamp()
    assert only(explanation).blocked_by == ()
    open_now = Target.of_place(beacon(), [campaign(asleep=True)])
    assert explain(open_now, new_question()).reason is Reason.INACTIVE
    content = only(explain(open_now, new_question())).checks[-2]
    assert content.check is Reason.INACTIVE
    assert content.passed is False
    assert content.compared == ("its content is not in the index yet", "its content")
    assert explain(awake(open_now), new_question()).reason is Reason.GRANTED
