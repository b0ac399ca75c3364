"""What a process remembers: claims, and its part of the index."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.index.entries import rules_field
from engine.kafka.detections import BeaconKey
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from rules.model import CampaignSnapshot
from tests.rules.records import UUID, campaign
from tests.rules.records import beacon as place_of

NOW = 1000.0
HOURLY, DAILY = campaign(id=1, delay=3600), campaign(id=2, delay=86_400)
CALL = campaign(id=3, delay=3600, format="connector", content=None)

UDIDS = st.sampled_from("abcdef")
CAMPAIGNS = st.integers(1, 3)
TIMES = st.integers(0, 20)
KINDS = st.sampled_from(["remember", "remember", "ask", "expire"])
EVENTS = st.tuples(KINDS, UDIDS, CAMPAIGNS, TIMES, st.booleans())


def free(
    remembered: RememberedClaims, at: float, *campaigns: CampaignSnapshot, udid: str = "phone"
) -> list[int]:
    """The ids of the campaigns that memory does not deny."""
    claims = remembered.by_device.get(udid, {})
    found = remembered.not_held(claims, campaigns or (HOURLY, DAILY), at)
    return [each.id for each in found]


def test_what_was_read_denies_no_call() -> None:
    """The connector role may have given the claim back meanwhile: Redis is asked."""
    memory = ClaimMemory(1000)
    one = memory.for_assignment()
    one.remember("phone", {3: 100.0}, NOW, are_all=True)
    assert free(one, 101, CALL) == [3]
    one.remember("phone", {-3: 100.0}, NOW)
    assert free(one, 101, CALL) == []
    one.forget_expired(NOW + 4.9)
    assert free(one, 101, CALL) == []
    one.remember("other", {1: 100.0}, NOW, briefly=True)
    one.forget_expired(NOW + 5)
    assert free(one, 101, CALL) == [3]
    assert free(one, 101, udid="other") == [1, 2]
    one.close()
    one.remember("phone", {1: 100.0}, NOW)
    assert (memory.held, one.by_device) == (0, {})


def test_full_memory_forgets_what_it_has_known_longest() -> None:
    memory = ClaimMemory(100)
    one = memory.for_assignment()
    for number in range(1000):
        one.remember(f"phone {number}", {1: 100.0}, NOW)
        assert memory.held <= 400
    assert free(one, 101, udid="phone 999") == [2]
    assert free(one, 101, udid="phone 10") == [1, 2]


@settings(max_examples=100)
@given(most=st.integers(4, 16), parts=st.integers(1, 3), events=st.data())
def test_it_never_invents_a_claim_and_stays_within_its_bound(
    most: int, parts: int, events: st.DataObject
) -> None:
    memory = ClaimMemory(most)
    remembered = [memory.for_assignment() for _ in range(parts)]
    stored: list[dict[tuple[str, int], list[int]]] = [{} for _ in range(parts)]
    for _ in range(events.draw(st.integers(0, 40))):
        number = events.draw(st.integers(0, parts - 1))
        one, truth = remembered[number], stored[number]
        kind, udid, id_, at, briefly = events.draw(EVENTS)
        if kind == "remember":
            one.remember(udid, {id_: at}, at, briefly=briefly)
            truth.setdefault((udid, id_), []).append(at)
        elif kind == "expire":
            one.forget_expired(at)
        for id_, known in one.by_device.get(udid, {}).items():
            assert known in truth[udid, id_]
        held = sum(len(each) + 3 for part in remembered for each in part.by_device.values())
        assert memory.held == held <= 4 * most + 6
    for each in remembered:
        each.close()
    assert memory.held == 0


# The process's cache of the index


def key(minor: int) -> BeaconKey:
    return BeaconKey(UUID, 1, minor)


def beacon(*campaign_ids: int) -> IndexedPlace:
    return IndexedPlace(place_of(), [campaign(id=number) for number in campaign_ids], None)


def test_a_change_drops_what_depends_on_it():
    for changed, kept in (
        (f"b:{UUID}:1:1", {2, 3, 4}),
        (f"b:{UUID}:1:4", {1, 2, 3}),
        ("c:2", {3, 4}),
        ("k:1", {4}),
        ("k:8", {1, 2, 3, 4}),
        (rules_field(1), {4}),
    ):
        cache = PlaceCache(100)
        known = {key(1): beacon(1, 2), key(2): beacon(2), key(3): beacon(3), key(4): None}
        cache.keep(known, cache.version)
        before = cache.version
        cache.drop([changed])
        assert set(cache.known) == {key(minor) for minor in kept}
        cache.keep({key(5): beacon()}, before)
        assert key(5) not in cache.known, "it was read during a change"


def test_a_campaign_in_an_unknown_time_zone_is_left_out():
    made = IndexedPlace(
        place_of(), [campaign(id=1), campaign(id=2, time_zone="Mars/Olympus")], None
    )
    assert [c.id for c in made.target.phase_at(1_795_165_200.0).open] == [1]


def test_beacons_share_campaigns_and_their_size_is_bounded():
    cache, dice = PlaceCache(10_000, most_bytes=50_000), random.Random(5)
    for minor in range(1000):
        size = dice.choice((1000, 1001))  # of one of its campaigns; else it is what it was
        wanted = {
            number: campaign(id=number, content="x" * size)
            for number in (minor, minor // 10 + 5000)
        }
        campaigns = cache.reuse(wanted)
        cache.keep({key(minor): IndexedPlace(place_of(), campaigns.values(), None)}, cache.version)
        held = [b.campaigns for b in cache.known.values() if isinstance(b, IndexedPlace)]
        contents = {id(each): len(each.content or "") for of in held for each in of}
        assert sum(contents.values()) <= 50_000
        assert cache._bytes <= 50_000
        assert all(cache.reuse(wanted)[each] == wanted[each] for each in wanted)
    assert len(contents) < sum(map(len, held))
    cache.drop([f"b:{UUID}:1:{minor}" for minor in range(1000)])
    assert (cache._bytes, cache._campaigns) == (0, {})
