"""A replay that lets decisions stand says what deciding each detection by itself says."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cli.replay.catalogs import ReplayedCampaign, ReplayedCatalog, VenueNames
from engine.cli.replay.decisions import CatalogReplay
from engine.cli.replay.file_source import FileRecord
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from engine.trigger.beacon_cache import IndexedBeacon
from rules.decision import decide
from rules.model import CampaignSnapshot, Reason, Zone
from tests.property.campaigns import DAY, anchors, campaigns, instants, zones
from tests.property.test_decision import MAX_AGE
from tests.unit.rules.records import UUID, beacon, campaign, epoch, venue

PLACE = VenueNames("Company", "Library")
NOON = epoch("2026-11-20T12:00:00Z")
STEPS = (0.0, 0.25, 1.0, 30.0, 59.0, 60.0, 75.0, 90.0, 500.0, 900.0, 3599.0, 3600.0, float(DAY))
KEYS = [BeaconKey(UUID, 1, minor) for minor in range(3)]  # the catalog has the first two


class Seen(NamedTuple):
    """A detection as it is generated; `late` is how long after it its record came."""

    udid: str
    key: BeaconKey
    zone: Zone
    at: float
    late: float


class Visit(NamedTuple):
    """A catalog and what is detected, in batches that count or do not."""

    campaigns: tuple[CampaignSnapshot, ...]
    active: bool
    batches: list[tuple[bool, list[Seen]]]


@st.composite
def visits(draw: st.DrawFn) -> Visit:
    if draw(st.booleans()):
        # All open, with delays of their own: of several claims one runs out first.
        delays = draw(st.lists(st.sampled_from((60, 90, 600, 3600)), min_size=3, max_size=3))
        chosen = tuple(campaign(id=number, delay=each) for number, each in enumerate(delays, 1))
        around = st.just(NOON)
    else:
        zone = draw(zones)
        near = draw(anchors(zone))
        chosen = tuple(draw(campaigns(zone, near, number)) for number in range(1, 4))
        around = instants(near, chosen[0])
    begin = draw(around)
    steps = st.sampled_from(STEPS)
    seen = st.builds(
        Seen,
        st.sampled_from("ab"),
        st.sampled_from((KEYS[0], *KEYS)),
        st.sampled_from((Zone.NEAR, Zone.NEAR, *Zone)),
        st.just(begin) | steps.map(lambda step: begin + step) | around,
        st.sampled_from((0.0, 0.0, 300.0, 300.5, -300.5)),
    )
    batches = draw(st.lists(st.tuples(st.booleans(), st.lists(seen, max_size=12)), max_size=4))
    return Visit(chosen, draw(st.integers(0, 9)) > 0, batches)


def catalog(visit: Visit) -> ReplayedCatalog:
    """All campaigns at the first beacon, the first one at the second."""
    made = beacon(venue=venue(active=visit.active))
    beacons = {
        KEYS[0]: IndexedBeacon(made, visit.campaigns, None),
        KEYS[1]: IndexedBeacon(made, visit.campaigns[:1], None),
    }
    named = {each.id: ReplayedCampaign(PLACE, each.name, each.id, "x") for each in visit.campaigns}
    return ReplayedCatalog("x", beacons, named, {1: PLACE})


def decoded(seen: Seen) -> DecodedDetection:
    record: Any = FileRecord(b"", 1, timestamp=(seen.at + seen.late) * 1000)
    message = Detection(uuid=UUID, major=1, minor=1, device=ReceivedDevice(udid=seen.udid))
    return DecodedDetection(record, message, seen.key, seen.zone, seen.at)


@settings(max_examples=300)
@given(visits())
def test_a_standing_decision_equals_a_new_one(visit: Visit) -> None:
    replayed = catalog(visit)
    replay = CatalogReplay(replayed, max_age=MAX_AGE)
    held: defaultdict[str, dict[int, float]] = defaultdict(dict)
    counts: Counter[Reason] = Counter()
    for counted, batch in visit.batches:
        granted = []
        for seen in batch:
            known = replayed.beacons.get(seen.key)
            target = None if known is None else known.target
            arrived = (seen.at + seen.late) * 1000 / 1000
            claims = held[seen.udid]
            decision = decide(target, seen.zone, seen.at, arrived, MAX_AGE, claims)
            for each in decision.granted:
                granted.append((seen.udid, seen.at, each.id))
                if each.delay > 0:
                    claims[each.id] = max(seen.at, claims.get(each.id, seen.at))
            counts[decision.reason] += counted
        grants = replay.decide(map(decoded, batch), counted=counted)
        found = [(each.udid, each.detection.detected_at, each.campaign.id) for each in grants]
        assert found == (granted if counted else [])
    replay.tally.fold()
    assert replay.tally.detections == +counts
