"""The process's cache of the index."""

from engine.kafka.detections import BeaconKey
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from rules.model import CampaignSnapshot
from tests.trigger.samples import BEACON, campaign

UUID = BEACON.uuid


def key(minor: int) -> BeaconKey:
    return BeaconKey(UUID, 1, minor)


def beacon(*campaign_ids: int) -> IndexedPlace:
    return IndexedPlace(BEACON, [campaign(id=number) for number in campaign_ids], None)


def test_a_changed_beacon_is_dropped_unknown_ones_too():
    cache = PlaceCache(100)
    cache.keep({key(1): beacon(), key(2): None, key(3): None}, cache.version)
    cache.drop([f"b:{UUID}:1:1", f"b:{UUID}:1:2"])
    assert set(cache.known) == {key(3)}


def test_a_changed_campaign_drops_the_beacons_that_have_it():
    cache = PlaceCache(100)
    cache.keep({key(1): beacon(1, 2), key(2): beacon(2), key(3): beacon(3)}, cache.version)
    cache.drop(["c:2"])
    assert set(cache.known) == {key(3)}


def test_a_changed_connector_drops_its_companys_beacons():
    cache = PlaceCache(100)
    cache.keep({key(1): beacon(1), key(2): None}, cache.version)
    cache.drop(["k:9"])
    assert set(cache.known) == {key(2)}


def test_a_read_during_a_change_is_not_cached():
    cache = PlaceCache(100)
    before = cache.version
    cache.drop(["c:5"])
    cache.keep({key(1): beacon()}, before)
    assert not cache.known


def test_what_is_unknown_displaces_nothing():
    cache = PlaceCache(10)
    cache.keep({key(minor): beacon() for minor in range(5)}, cache.version)
    for minor in range(5, 100):
        cache.keep({key(minor): None}, cache.version)
    assert len(cache.known) <= 10
    assert {key(minor) for minor in range(5)} <= set(cache.known)


def test_beacons_that_are_detected_in_turn_are_found_in_a_cache_that_is_too_small():
    cache, found = PlaceCache(100), 0
    for number in range(3000):
        minor = number % 150
        if key(minor) in cache.known:
            found += 1
        else:
            cache.keep({key(minor): None}, cache.version)
    assert found > 600  # none, if the oldest were dropped


def test_a_campaign_in_an_unknown_time_zone_is_left_out():
    made = IndexedPlace(BEACON, [campaign(id=1), campaign(id=2, time_zone="Mars/Olympus")], None)
    assert [c.id for c in made.target.phase_at(1_795_165_200.0).open] == [1]


def large(number: int, size: int = 1000) -> CampaignSnapshot:
    return campaign(id=number, content="x" * size)


def test_beacons_share_a_campaign_until_it_changes():
    cache = PlaceCache(100)
    for minor in range(3):
        campaigns = cache.reuse({7: large(7)})
        cache.keep({key(minor): IndexedPlace(BEACON, campaigns.values(), None)}, cache.version)
    first, second, third = (cache.known[key(minor)] for minor in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.campaigns[0] is second.campaigns[0] is third.campaigns[0]
    changed = cache.reuse({7: large(7, 1001)})[7]
    assert changed is not first.campaigns[0]


def test_the_size_of_cached_content_is_bounded():
    cache = PlaceCache(10_000, most_bytes=50_000)
    for minor in range(1000):
        campaigns = cache.reuse({number: large(number) for number in (minor, minor // 10 + 5000)})
        cache.keep({key(minor): IndexedPlace(BEACON, campaigns.values(), None)}, cache.version)
        held = {id(c): c for b in cache.known.values() if b is not None for c in b.campaigns}
        assert sum(len(c.content or "") for c in held.values()) <= 50_000
        assert cache._bytes <= 50_000
    cache.drop([f"b:{UUID}:1:{minor}" for minor in range(1000)])
    assert (cache._bytes, cache._campaigns) == (0, {})


def test_a_campaign_that_changed_while_others_hold_the_old_one():
    cache = PlaceCache(100)
    old, new = large(7), large(7, 3000)
    cache.keep({key(1): IndexedPlace(BEACON, [old], None)}, cache.version)
    cache.keep({key(2): IndexedPlace(BEACON, [new], None)}, cache.version)
    cache.keep({key(3): IndexedPlace(BEACON, [new], None)}, cache.version)
    for minor in (1, 3, 2):
        cache.drop([f"b:{UUID}:1:{minor}"])
    assert (cache._bytes, cache._campaigns) == (0, {})
