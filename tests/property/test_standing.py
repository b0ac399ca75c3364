"""A trigger that lets decisions stand decides what it would decide without any that stand."""

from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from engine.trigger.grants import decider
from rules.model import CampaignSnapshot, Reason, Zone
from rules.outcome import Decision
from tests.property.test_decision import MAX_AGE
from tests.unit.engine.records import record
from tests.unit.rules.records import UUID, beacon, campaign, epoch

NOON = epoch("2026-11-20T12:00:00Z")
KEY = BeaconKey(UUID, 1, 1)
HOURS = st.sampled_from(((0, 1440), (0, 1440), (0, 722), (721, 1440), (721, 723), (719, 721)))
DELAYS = st.sampled_from((30, 60, 60, 90, 3600, 0))
STEPS = st.sampled_from((0.0, 1.0, 29.0, 30.0, 30.0, 60.0, -30.0))
LATE = st.sampled_from((0.0,) * 20 + (5.0, 30.0, MAX_AGE, MAX_AGE + 1, -MAX_AGE - 1))
ZONES = st.sampled_from((Zone.NEAR,) * 12 + tuple(Zone))
KINDS = st.sampled_from(("detect",) * 30 + ("remember", "read", "edit"))
SHORT = st.sampled_from((None, None, None, 5.0, 40.0))


class Event(NamedTuple):
    """What happens `step` seconds after the last event; `late` and `brief` in seconds, too."""

    kind: str
    udid: str
    campaign: int
    place: int
    zone: Zone
    step: float
    late: float
    brief: float | None


EVENTS = st.builds(
    Event,
    KINDS,
    st.sampled_from("aaaaab"),
    st.integers(1, 3),
    st.sampled_from((0, 0, 0, 0, 1, 2)),
    ZONES,
    STEPS,
    LATE,
    SHORT,
)
CAMPAIGNS = st.lists(st.tuples(DELAYS, HOURS), min_size=3, max_size=3)


class Trigger:
    """Decides by claims, of which some were only read, at two beacons; a third one is unknown."""

    def __init__(
        self, campaigns: tuple[CampaignSnapshot, ...], remembered: RememberedClaims
    ) -> None:
        self.remembered = remembered
        self._campaigns = campaigns
        self._beacons: list[IndexedBeacon | None] = []
        self._read_beacons()

    def decide(self, detection: DecodedDetection, place: int, now: float) -> Decision:
        return decider(now, MAX_AGE, self.remembered)(detection, self._beacons[place])

    def change(self, event: Event, claims: list[tuple[int, float]], now: float) -> None:
        until = None if event.brief is None else now + event.brief
        if event.kind == "edit":
            self._campaigns = self._campaigns[::-1]
            self._read_beacons()
        elif event.kind == "read":
            self.remembered.read(event.udid, dict(claims))
        else:
            for number, at in claims:
                self.remembered.remember(event.udid, number, at, until)

    def _read_beacons(self) -> None:
        self._beacons = [
            IndexedBeacon(beacon(), self._campaigns, None),
            IndexedBeacon(beacon(), self._campaigns[:1], None),
            None,
        ]


@settings(max_examples=150)
@given(chosen=CAMPAIGNS, events=st.lists(EVENTS, min_size=30, max_size=40))
def test_a_standing_decision_equals_a_new_one(
    chosen: list[tuple[int, tuple[int, int]]], events: list[Event]
) -> None:
    made = tuple(
        campaign(id=number, delay=delay, start_minute=begin, end_minute=end)
        for number, (delay, (begin, end)) in enumerate(chosen, 1)
    )
    standing, recreated = (Trigger(made, ClaimMemory(1000).for_assignment()) for _ in range(2))
    now = NOON
    for event in events:
        now += event.step
        if event.kind == "detect":
            detection = detected(event.udid, event.zone, now - event.late)
            recreated.remembered.standing.clear()
            found = standing.decide(detection, event.place, now)
            assert outcome(found) == outcome(recreated.decide(detection, event.place, now))
            changes = [(each.id, detection.detected_at) for each in found.granted if each.delay > 0]
        else:
            changes = [(event.campaign, now)]
        for trigger in (standing, recreated):
            trigger.change(event, changes, now)


def detected(udid: str, zone: Zone, at: float) -> DecodedDetection:
    message = Detection(uuid=UUID, major=1, minor=1, device=ReceivedDevice(udid=udid))
    return DecodedDetection(record(b""), message, KEY, zone, at)


def outcome(decision: Decision) -> tuple[Reason, int, list[tuple[int, Reason]]]:
    return decision.reason, decision.throttled, list(decision.by_campaign)


class CountingClaims(RememberedClaims):
    """Counts how often the claims of a device are looked up."""

    lookups = 0

    def of(self, udid: str) -> Mapping[int, float]:
        self.lookups += 1
        return super().of(udid)


def test_a_throttled_device_that_stays_needs_no_lookup_of_its_claims():
    midnight = NOON - 12 * 3600  # with it the phase begins
    remembered = CountingClaims(ClaimMemory(10))
    trigger = Trigger((campaign(id=1, delay=86_400),), remembered)
    remembered.remember("a", 1, midnight - 60)
    first = trigger.decide(detected("a", Zone.NEAR, midnight + 1), 0, midnight + 1)
    assert first.reason is Reason.THROTTLED
    lookups = remembered.lookups
    for at, now in (
        (NOON, NOON),
        (midnight, midnight),
        (NOON, NOON + MAX_AGE),
        (NOON, NOON - MAX_AGE),
    ):
        assert trigger.decide(detected("a", Zone.NEAR, at), 0, now) is first
    assert remembered.lookups == lookups


def test_a_claim_that_was_read_denies_a_later_detection_of_its_device():
    remembered = ClaimMemory(10).for_assignment()
    trigger = Trigger((campaign(id=1, delay=60),), remembered)
    remembered.read("a", {1: NOON})
    reasons = {
        udid: trigger.decide(detected(udid, Zone.NEAR, NOON + 1), 0, NOON + 1).reason
        for udid in "ab"
    }
    assert reasons == {"a": Reason.THROTTLED, "b": Reason.GRANTED}


def test_a_standing_decision_ends_with_the_generation_of_its_claims():
    remembered = ClaimMemory(10).for_assignment()
    trigger = Trigger((campaign(id=1, delay=60),), remembered)
    for number in range(100):
        udid = str(number)
        remembered.remember(udid, 1, NOON)
        found = trigger.decide(detected(udid, Zone.NEAR, NOON + 1), 0, NOON + 1)
        assert found.reason is Reason.THROTTLED
        assert udid in remembered.standing
        assert len(remembered.standing) <= 10
    remembered.close()
    assert not remembered.standing
