"""The detections that leave a row in the mode `changes`, compared with a plain form of the rule."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.recorder.aggregate import rows_of_changes
from engine.recorder.rows import DetectionRow, PresenceKey, PresenceState

MINUTE = timedelta(seconds=60)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ZONES = ("immediate", "near", "far", "unknown")

rows = st.builds(
    DetectionRow,
    device_id=st.integers(1, 2),
    venue_id=st.just(1),
    beacon_id=st.integers(1, 2),
    status=st.sampled_from(ZONES),
    create_on=st.integers(-120, 240).map(lambda seconds: NOON + timedelta(seconds=seconds)),
    ip=st.none(),
)
journeys = st.lists(rows, max_size=40)


def oracle(journey: list[DetectionRow]) -> list[DetectionRow]:
    """A row is kept if none of the same device and beacon was, if the last that was kept has
    another zone, or if it is a minute or more older than this one.
    """
    kept: list[DetectionRow] = []
    for row in journey:
        same = [k for k in kept if (k.device_id, k.beacon_id) == (row.device_id, row.beacon_id)]
        if (
            not same
            or same[-1].status != row.status
            or (row.create_on - same[-1].create_on).total_seconds() >= 60
        ):
            kept.append(row)
    return kept


@given(journeys)
def test_the_rows_are_those_of_the_rule(journey: list[DetectionRow]) -> None:
    assert rows_of_changes(journey, {}) == oracle(journey)


@given(journeys, st.lists(st.integers(0, 40)))
def test_batches_do_not_matter(journey: list[DetectionRow], cuts: list[int]) -> None:
    """However the records are cut, and with the states read back from rows that were written."""
    states: dict[PresenceKey, PresenceState] = {}
    kept: list[DetectionRow] = []
    edges = sorted({0, *(cut for cut in cuts if cut < len(journey)), len(journey)})
    for begin, end in pairwise(edges):
        kept += rows_of_changes(journey[begin:end], states)
    assert kept == oracle(journey)
    last = {(row.device_id, row.beacon_id): (row.status, row.create_on) for row in kept}
    assert {tuple(key): tuple(state) for key, state in states.items()} == last
