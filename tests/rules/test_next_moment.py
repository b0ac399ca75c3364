"""The first moment at which a campaign would fire."""

from datetime import datetime

from rules.decision import Target
from rules.explanation import (
    awake,
    explain,
)
from rules.model import Reason
from tests.rules.questions import at_beacon, new_question, only
from tests.rules.records import beacon, campaign


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
    assert (content.found, content.needed) == ("its content is not in the index yet", "its content")
    assert explain(awake(open_now), new_question()).reason is Reason.GRANTED
