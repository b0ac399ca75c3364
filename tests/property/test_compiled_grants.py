"""The compiled functions of compiled_grants.pyx do what those of grants.py do."""

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from engine.trigger import grants as interpreted
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from engine.trigger.grants import Grant, Granting
from rules.decision import decide
from rules.model import Zone
from rules.outcome import Decision
from tests.property.refusing_mall import CONNECTOR
from tests.property.test_decision import MAX_AGE
from tests.servers.compiled import compiled
from tests.unit.engine.records import record
from tests.unit.rules.records import UUID, beacon, campaign, epoch

NOON = epoch("2026-11-20T12:00:00Z")
KEY = BeaconKey(UUID, 1, 1)
DAILY, HOURLY = campaign(id=1, delay=86_400), campaign(id=2, delay=60)
UNCAPPED = campaign(id=3, delay=0)
CALL = campaign(id=4, delay=60, format="connector", content=None)
SOON, CLOSED = campaign(id=5, delay=60, start_minute=721), campaign(id=6, end_minute=1)
AIMED = ((DAILY, HOURLY), (DAILY, UNCAPPED), (CALL, HOURLY, SOON), (SOON,), (CLOSED,), ())
EDGES = (MAX_AGE, MAX_AGE + 1, -MAX_AGE, -MAX_AGE - 1)
NO_BEACON, INACTIVE = len(AIMED), len(AIMED) + 1


class Event(NamedTuple):
    """What happens `after` seconds to a device: at a place, or to its claim on a campaign.

    Its time is `late` seconds before; the claim is remembered for `brief` seconds.
    """

    kind: str
    udid: str
    place: int
    zone: Zone
    claimed: int
    after: float
    late: float
    brief: float | None


EVENTS = st.builds(
    Event,
    kind=st.sampled_from(("detect",) * 8 + ("remember", "read", "age", "edit")),
    udid=st.sampled_from(("a", "a", "b", "é")),
    place=st.sampled_from((0, 0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 5, NO_BEACON, INACTIVE)),
    zone=st.sampled_from((Zone.NEAR,) * 6 + tuple(Zone)),
    claimed=st.integers(1, 6),
    after=st.sampled_from((0.0, 1.0, 10.0, 30.0, 60.0)),
    late=st.sampled_from((0.0,) * 6 + (0.0015, 30.0, 30.0, *EDGES)),
    brief=st.sampled_from((None, None, 5.0)),
)


class Places:
    """The beacons, which both ways share: they remember phases."""

    def __init__(self) -> None:
        self.beacons: list[IndexedBeacon | None] = []
        self.edit()

    def edit(self) -> None:
        """Read them from the index again."""
        self.beacons = [IndexedBeacon(beacon(), aimed, CONNECTOR) for aimed in AIMED]
        self.beacons += [None, IndexedBeacon(beacon(active=False), (DAILY,), None)]


class Way:
    """One way to decide, with its own memory."""

    def __init__(self, granting: Granting, places: Places) -> None:
        self.remembered: RememberedClaims = ClaimMemory(1000).for_assignment()
        self._granting = granting
        self._places = places

    def decide(self, detected: DecodedDetection, place: int, now: float) -> list[Any]:
        """The decision and the grants, in a form that can be compared."""
        found = self._places.beacons[place]
        decision = self._granting.decider(now, MAX_AGE, self.remembered)(detected, found)
        for campaign_id in [each.id for each in decision.granted if each.delay > 0]:
            self.remembered.remember(
                detected.message.device.udid, campaign_id, detected.detected_at
            )
        made = [] if found is None else self._granting.grants_of(detected, found, decision)
        assert all(grant.decision is decision for grant in made)
        # (Decisions are compared by identity.)
        fields = [(*each[:3], *each[4:]) for each in map(msgspec.structs.astuple, made)]
        shared = found is not None and decision is found.target.current.all_granted
        return [told(decision), shared, fields, self._granting.requests_of(made)]

    def change(self, event: Event, now: float) -> None:
        """Claims come, or become old."""
        until = None if event.brief is None else now + event.brief
        if event.kind == "remember":
            self.remembered.remember(event.udid, event.claimed, now - event.late, until)
        elif event.kind == "read":
            self.remembered.read(event.udid, {event.claimed: now - event.late, 1: now})
        elif event.kind == "age":
            self.remembered.grow_old()

    def memory(self) -> tuple[Any, ...]:
        """All that is remembered."""
        standing = {
            udid: (id(each.phase), each.zone, each.until)
            for udid, each in self.remembered.standing.items()
        }
        return self.remembered.young, self.remembered._old, standing


def told(decision: Decision) -> tuple[Any, ...]:
    return decision.tally, decision.granted, list(decision.by_campaign)


def detected_at(offset: int, udid: str, zone: Zone, at: float) -> DecodedDetection:
    message = Detection(uuid=UUID, major=1, minor=1, device=ReceivedDevice(udid=udid))
    return DecodedDetection(record(b"", offset=offset), message, KEY, zone, at, offset % 3)


def compiled_grants() -> Granting:
    module: Granting = compiled("engine.trigger.compiled_grants")
    return module


def at_soon(after: float, late: float = 0.0) -> Event:
    """A detection at the beacon whose campaign opens a minute after noon."""
    return Event("detect", "a", AIMED.index((SOON,)), Zone.NEAR, 1, after, late, None)


# The claim of a call, which is requested again: its service may have declined.
READ_CALL = Event("read", "a", AIMED.index((CALL, HOURLY, SOON)), Zone.NEAR, 4, 0.0, 0.0, None)


@settings(max_examples=300)
@example(events=[at_soon(70), at_soon(1), at_soon(1, late=30)])  # throttled, and not open before
@example(events=[at_soon(0), at_soon(70), at_soon(1), at_soon(1, late=30)])
@example(events=[READ_CALL, READ_CALL._replace(kind="detect", after=1.0)])
@example(events=[at_soon(1), at_soon(59), at_soon(0)])
@given(events=st.lists(EVENTS, min_size=20, max_size=40))
def test_both_decide_grant_and_remember_the_same(events: list[Event]) -> None:
    places = Places()
    ways = [Way(interpreted, places), Way(compiled_grants(), places)]
    now = NOON
    for number, event in enumerate(events):
        now += event.after
        if event.kind == "edit":
            places.edit()
        elif event.kind == "detect":
            detected = detected_at(number, event.udid, event.zone, now - event.late)
            first, second = (way.decide(detected, event.place, now) for way in ways)
            assert first == second
        for way in ways:
            way.change(event, now)
        assert ways[0].memory() == ways[1].memory()
        ways.reverse()  # who is first computes the phases


@given(
    owners=st.lists(st.tuples(st.sampled_from(("a", "b", "é")), st.integers(1, 2**62)), max_size=8),
    delay=st.integers(1, 2**50),
    at=st.floats(0, 253_402_300_799),
)
def test_both_pack_the_same_requests(owners: list[tuple[str, int]], delay: int, at: float) -> None:
    grants = list[Grant]()
    for offset, (udid, number) in enumerate(owners):
        found = IndexedBeacon(beacon(), [aimed := campaign(id=number, delay=delay)], None)
        detected = detected_at(offset, udid, Zone.NEAR, at)
        decision = Decision(decide(found.target, Zone.NEAR, at, at, 1, {}).reason)
        decision = msgspec.structs.replace(decision, granted=(aimed,))
        grants += compiled_grants().grants_of(detected, found, decision)
        assert grants[-1:] == interpreted.grants_of(detected, found, decision)
    assert compiled_grants().requests_of(grants) == interpreted.requests_of(grants)


def test_an_owner_of_another_length_is_refused() -> None:
    found, detected = IndexedBeacon(beacon(), [DAILY], None), detected_at(1, "a", Zone.NEAR, NOON)
    (grant,) = interpreted.grants_of(
        detected, found, decide(found.target, Zone.NEAR, NOON, NOON, 1, {})
    )
    with pytest.raises(ValueError, match="16 bytes"):
        compiled_grants().requests_of([msgspec.structs.replace(grant, notification_id=b"short")])
