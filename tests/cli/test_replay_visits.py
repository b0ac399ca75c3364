"""Visits of a replay against a count of gaps; what the options are told; both orders of records."""

import math
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.detection_file import FileRecord
from engine.cli.replay.catalogs import ReplayedCampaign, ReplayedCatalog
from engine.cli.replay.decisions import VisitReplay, VisitSettings
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from engine.trigger.place_cache import IndexedPlace
from rules.model import CompanyRules, Zone
from tests.cli.replay_run import catalog_replay
from tests.rules.records import UUID, beacon, campaign, epoch

NOON = epoch("2026-11-20T12:00:00Z")
KEYS = [BeaconKey(UUID, 1, minor) for minor in (1, 2)]
PLACES: dict[Any, IndexedPlace] = {
    **{key: IndexedPlace(beacon(id=key.minor, minor=key.minor), [], None) for key in KEYS},
}
OWN, LONGER = VisitSettings(), VisitSettings(60)


def following(
    settings: VisitSettings = OWN,
    places: dict[Any, IndexedPlace] = PLACES,
    since: float = -math.inf,
) -> VisitReplay:
    return VisitReplay(
        settings=settings,
        catalog=ReplayedCatalog("x", places, {}),
        since=since,
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
    replay.finish()
    return {
        kind: (each.visits, each.flaps, each.seconds, dict(each.lengths))
        for kind, each in replay.tallies.items()
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


def test_moments_of_visits_fire_campaigns() -> None:
    """One goes away for 40 s, which is an exit by the silence of 30 s."""
    fires = [
        campaign(id=1, on="enter", delay=0),
        campaign(id=2, on="dwell", dwell_minutes=1, delay=0),
        campaign(id=3, on="exit", delay=0),
        campaign(id=4, on="enter", delay=3600),
    ]
    rules = CompanyRules(company_id=1, tracks_visits=True)
    named = {each.id: ReplayedCampaign("Mall", "Hall", "c", each.id, "html") for each in fires}
    place = IndexedPlace(beacon(minor=1), fires, None, rules=rules)
    catalog = ReplayedCatalog("x", {KEYS[0]: place}, named)
    present, longer = (catalog_replay(catalog, 300.0, settings) for settings in (OWN, LONGER))
    as_run = catalog_replay(catalog, 300.0)
    detections = [seen("a", at) for at in (0, 20, 60, 80, 100, 120)]
    sent = []
    for each in (as_run, present, longer):
        granted = each.decide(detections) + each.finish()
        sent.append(sorted((g.campaign.id, g.detection.detected_at - NOON) for g in granted))
    enters, exits = [(1, 0.0), (1, 60.0)], [(3, 20.0), (3, 120.0)]
    assert sent[0] == sent[1] == [*enters, (2, 120.0), *exits, (4, 0.0)]
    assert sent[2] == [(1, 0.0), (2, 60.0), (3, 120.0), (4, 0.0)]
    rows = [
        [row for row in each.rows(other) if row["kind"] == "campaign"]
        for each, other in ((present, longer), (longer, present))
    ]
    lost, gained = ({row["campaign_id"]: row["only_here"] for row in each} for each in rows)
    assert (lost, gained) == ({1: 1, 2: 0, 3: 1, 4: 0}, {1: 0, 2: 0, 3: 0, 4: 0})
    assert {row["campaign_id"]: row["sent"] for row in rows[0]} == {1: 2, 2: 1, 3: 2, 4: 1}
