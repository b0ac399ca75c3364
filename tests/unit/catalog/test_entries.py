from catalog.index.drain import is_built
from catalog.index.entries import (
    BUCKETS,
    IndexKeys,
    Marker,
    beacon_field,
    bucket,
    campaign_field,
    connector_field,
)

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"


def test_names():
    keys = IndexKeys("proximity:")
    assert beacon_field(UUID, 1, 2) == f"b:{UUID}:1:2"
    assert (campaign_field(3), connector_field(4)) == ("c:3", "k:4")
    assert keys.bucket(15) == "proximity:index:{15}"
    assert keys.building(15) == "proximity:index:{15}:building"
    assert keys.changes == "proximity:index:changes"
    assert keys.of("c:3") == keys.bucket(bucket("c:3"))


def test_fields_spread_over_all_buckets():
    counts = [0] * BUCKETS
    for minor in range(16_000):
        counts[bucket(beacon_field(UUID, 1, minor))] += 1
    assert min(counts) > 800
    assert max(counts) < 1200


def test_is_built():
    ours, theirs = (Marker(catalog=name, generation=1) for name in ("a", "b"))
    assert is_built([ours] * BUCKETS)
    assert is_built([ours] * BUCKETS, "a")
    assert not is_built([ours] * BUCKETS, "b")
    assert not is_built([ours, theirs])
    assert not is_built([ours, None])
    assert not is_built([None] * BUCKETS)
