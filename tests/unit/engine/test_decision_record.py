"""What claims made of a turn's grants: a record a detection, also where a report holds several."""

from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.decision_record import decided_by_claims
from engine.trigger.grants import Grant, grants_of
from rules.model import Reason
from rules.outcome import Decision
from tests.unit.engine.test_compose import BEACON, campaign, decoded

SENT = (campaign(id=1), campaign(id=2))
GRANTED = Decision(Reason.GRANTED, granted=SENT)


def grants(place: int) -> list[Grant]:
    """Of the detection at this place in its record."""
    detection = decoded()
    detection.index = place
    return grants_of(detection, IndexedBeacon(BEACON, SENT, None), GRANTED)


def test_each_detection_of_a_report_is_decided_by_its_claims() -> None:
    first, second = grants(0), grants(3)
    found = list(decided_by_claims([first[1], second[0]], [first[0], second[1]]))
    assert [(each.detection.index, list(each.held), each.denied) for each in found] == [
        (0, [2], 1),
        (3, [1], 1),
    ]


def test_all_campaigns_of_a_sighting_are_one_record() -> None:
    (found,) = decided_by_claims(grants(3), [])
    assert (found.detection.index, list(found.held), found.denied) == (3, [1, 2], 0)
