"""A decision says of each campaign what became of it."""

from rules.decision import Target, decide
from rules.model import Reason, Zone
from tests.rules.records import beacon, campaign, epoch

NOW = epoch("2026-11-20T12:00:00Z")


def test_each_campaign_with_the_check_that_refused_it() -> None:
    campaigns = (
        campaign(id=1, active=False),
        campaign(id=2, delay=3600),
        campaign(id=3, start_minute=1320, end_minute=1380),
        campaign(id=4),
        campaign(id=5, format="connector", content=None),
        campaign(id=6, delay=60),
    )
    target = Target.of_place(beacon(), campaigns, has_connector=False)
    decision = decide(target, Zone.NEAR, NOW, NOW, 300.0, {2: NOW - 60, 6: NOW - 60})
    assert dict(decision.by_campaign) == {
        1: Reason.INACTIVE,
        2: Reason.THROTTLED,
        3: Reason.OUTSIDE_HOURS,
        4: Reason.GRANTED,
        5: Reason.NO_CONNECTOR,
        6: Reason.GRANTED,
    }
    assert sum(count for _, count in decision.closed) + decision.throttled == 4
    assert len(decision.by_campaign) == 6


def test_a_refused_detection_checks_no_campaign() -> None:
    target = Target.of_place(beacon(), (campaign(),))
    assert list(decide(target, Zone.FAR, NOW, NOW, 300.0, {}).by_campaign) == []
    assert list(decide(None, Zone.FAR, NOW, NOW, 300.0, {}).by_campaign) == []
