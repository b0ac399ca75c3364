"""What the oracle of decisions does not look at: phases, what is shared, what is remembered."""

from rules.decision import Target, decide
from rules.model import CampaignSnapshot, Decision, Zone
from tests.rules.records import beacon, campaign, epoch, venue

NOW = epoch("2026-11-20T12:00:00Z")
OPEN = campaign(id=1)
CAPPED = campaign(id=2, delay=3600)
EVENING = campaign(id=3, start_minute=1320, end_minute=1380)


def target(*campaigns: CampaignSnapshot) -> Target:
    return Target(beacon(venue=venue(company_id=7)), campaigns)


def at(
    aim: Target, zone: Zone = Zone.NEAR, t: float = NOW, held: dict[int, float] | None = None
) -> Decision:
    return decide(aim, zone, t, NOW, 300.0, held or {})


def test_a_decision_belongs_to_the_company_of_its_venue() -> None:
    ours = target(CAPPED)
    decisions = (at(ours), at(ours, held={2: NOW}), at(ours, Zone.FAR), at(ours, t=NOW - 301))
    assert {each.company_id for each in decisions} == {7}
    assert {each.tally.company_id for each in decisions} == {7}


def test_decisions_are_shared_so_that_they_can_be_counted_by_identity() -> None:
    aim = target(OPEN, CAPPED, EVENING)
    assert at(aim) is at(aim, t=NOW + 1)
    capped = target(CAPPED, EVENING)
    assert at(capped, held={2: NOW}) is at(capped, held={2: NOW}, t=NOW + 1)
    evening = target(EVENING)
    assert at(evening) is at(evening, t=NOW - 1)
    assert at(aim, Zone.FAR) is at(evening, Zone.FAR)
    assert len({at(aim), at(evening), at(aim, Zone.FAR)}) == 3
