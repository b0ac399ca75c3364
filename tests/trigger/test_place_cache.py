"""The process's cache of the index."""

import random

from catalog.index.entries import rules_field
from engine.kafka.detections import BeaconKey
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from tests.rules.records import UUID, campaign
from tests.rules.records import beacon as place_of


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
