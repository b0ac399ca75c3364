"""Visits of a replay against a count of gaps; what the options are told; both orders of records."""

import math
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.detection_file import FileRecord
from engine.cli.replay.catalogs import ReplayedCatalog
from engine.cli.replay.decisions import VisitReplay, VisitSettings
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from engine.trigger.place_cache import IndexedPlace
from rules.model import Zone
from tests.rules.records import UUID, beacon, epoch

NOON = epoch("2026-11-20T12:00:00Z")
KEYS = [BeaconKey(UUID, 1, minor) for minor in (1, 2)]
PLACES: dict[Any, IndexedPlace] = {
    **{key: IndexedPlace(beacon(id=key.minor, minor=key.minor), [], None) for key in KEYS},
}
OWN = VisitSettings()


def following(
    settings: VisitSettings = OWN,
    places: dict[Any, IndexedPlace] = PLACES,
    since: float = -math.inf,
) -> VisitReplay:
    return VisitReplay(
        name="",
        settings=settings,
        catalog=ReplayedCatalog("x", places, {}),
        since=since,
        shift=0.0,
        max_age=300.0,
        path_loss_exponent=2.0,
    )


def seen(
    udid: str,
    at: float,
    key: Any = KEYS[0],
    *,
    live: bool = False,
    zone: Zone = Zone.NEAR,
    **more: Any,
) -> DecodedDetection:
    """`at` seconds after noon, from a file, or from Kafka at once."""
    stamp = (NOON + at) * 1000 if live else math.nan
    record: Any = FileRecord(b"", round(at * 1000), timestamp=stamp)
    message = Detection(device=ReceivedDevice(udid=udid), **more)
    return DecodedDetection(record, message, key, zone, NOON + at)


def all_of(replay: VisitReplay, detections: list[DecodedDetection]) -> dict[str, Any]:
    """Visits, flaps, seconds and lengths by kind, after the end."""
    for each in detections:
        replay.follow(each, [each])
    return {
        kind: (each.visits, each.flaps, each.seconds, dict(each.lengths))
        for kind, each in replay.finished().items()
    }


def gaps(times: dict[Any, list[int]], silence: int) -> tuple[int, int, float, dict[int, int]]:
    """The same by splitting each device's times at a place where a gap is longer."""
    visits = []
    flaps = 0
    for listed in times.values():
        begin = last = listed[0]
        for at in listed[1:]:
            if at - last > silence:
                visits.append(last - begin)
                flaps += at - last <= 300
                begin = at
            last = at
        visits.append(last - begin)
    classes = (0, 1, 5, 15, 30, 60, 120, 240)
    lengths = Counter(max(m for m in classes if m * 60 <= each) for each in visits)
    return len(visits), flaps, float(sum(visits)), dict(lengths)


worlds = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 4000)), min_size=1, max_size=40
)


@given(world=worlds, exit_=st.sampled_from([None, 1, 60, 400]), by_device=st.booleans())
def test_visits_are_what_lies_between_gaps(
    world: list[tuple[int, int, int]], exit_: int | None, by_device: bool
) -> None:
    """A file in order of time, or one device after the other."""
    world.sort(key=lambda each: (each[0] if by_device else 0, each[2]))
    at_beacons, at_venue = defaultdict(list), defaultdict(list)
    for device, place, at in world:
        at_beacons[device, place].append(at)
        at_venue[device].append(at)
    detections = [seen(str(device), at, KEYS[place]) for device, place, at in world]
    assert all_of(following(VisitSettings(exit_)), detections) == {
        "beacon": gaps(at_beacons, exit_ or 30),
        "venue": gaps(at_venue, exit_ or 120),
    }
    if not by_device:
        live = [seen(str(device), at, KEYS[place], live=True) for device, place, at in world]
        assert all_of(following(VisitSettings(exit_)), live) == {
            "beacon": gaps(at_beacons, exit_ or 30),
            "venue": gaps(at_venue, exit_ or 120),
        }


@pytest.mark.parametrize(("margin", "visits"), [(6.0, 2), (30.0, 1)])
def test_a_weak_signal_ends_a_visit_beyond_the_margin(margin: float, visits: int) -> None:
    """Near reaches 4 m, that is -71 dBm."""
    near = [seen("a", at, rssi=-65) for at in range(3)]
    far = [seen("a", 3 + at, zone=Zone.FAR, rssi=-90) for at in range(6)]
    back = [seen("a", 9 + at, rssi=-65) for at in range(5)]  # until the mean is near, too
    detections = [*near, *far, *back]
    found = all_of(following(VisitSettings(margin=margin)), detections)
    assert (found["beacon"][0], found["venue"][0]) == (visits, 1)
