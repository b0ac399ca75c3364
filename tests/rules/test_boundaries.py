"""The edges of the rules, one for each change of the code that no other test would notice."""

from math import inf

import pytest

from rules.decision import Target, decide
from rules.model import Reason, Zone
from rules.parsing import parse_delay, zone_from_rssi
from tests.rules.records import beacon, campaign, epoch, venue

NOON = epoch("2026-06-01T12:00:00+00:00")


def test_a_delay_of_one_second_throttles_for_one_second():
    target = Target.of_place(beacon(), [campaign(id=7, delay=1)])

    def reason(seconds: float) -> Reason:
        return decide(target, Zone.NEAR, NOON + seconds, NOON, 300, {7: NOON}).reason

    assert reason(0.5) is Reason.THROTTLED
    assert reason(1) is Reason.GRANTED


@pytest.mark.parametrize(("has_connector", "reason"), [(True, "granted"), (False, "no_connector")])
def test_a_beacon_record_shows_whether_its_company_has_a_connector(
    has_connector: bool, reason: str
):
    connector_campaign = campaign(format="connector", content=None)
    target = Target.of_place(beacon(), [connector_campaign], has_connector)
    assert decide(target, Zone.NEAR, NOON, NOON, 300, {}).reason == reason


def test_a_company_has_a_connector_unless_the_caller_says_otherwise():
    campaigns = [campaign(format="connector", content=None)]
    for target in (Target.of_place(beacon(), campaigns), Target(venue(), True, None, campaigns)):
        assert decide(target, Zone.NEAR, NOON, NOON, 300, {}).reason is Reason.GRANTED


def test_without_campaigns_nothing_ever_changes():
    phase = Target(venue(), True, Zone.NEAR, []).phase_at(NOON)
    assert (phase.since, phase.until, phase.open) == (-inf, inf, ())


def test_a_delay_may_be_64_characters_long():
    text = "15" + " " * (64 - len("15minutes")) + "minutes"
    assert parse_delay(text) == 900
    with pytest.raises(ValueError, match="not a cache delay"):
        parse_delay(text.replace("minutes", " minutes"))


def test_equal_powers_are_a_metre_whatever_the_exponent():
    assert zone_from_rssi(-59, -59, 1e-320) is Zone.NEAR


def test_asleep_keeps_what_decides_and_drops_what_is_sent():
    full = campaign(background="b", color="c", delay=60)
    asleep = full.without_content()
    assert asleep.asleep
    assert (asleep.title, asleep.push) == ("", "")
    assert (asleep.content, asleep.background, asleep.color) == (None, None, None)
    assert (asleep.id, asleep.delay, asleep.start, asleep.end) == (1, 60, full.start, full.end)
