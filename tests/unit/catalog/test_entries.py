from catalog.index.comparison import ExpectedIndex, IndexStatus, compare_markers
from catalog.index.entries import (
    BUCKETS,
    IndexKeys,
    Marker,
    WritePosition,
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


def status(*markers: Marker | None) -> IndexStatus:
    expected = ExpectedIndex("ours", 2, [WritePosition(1, 0)] * BUCKETS)
    all_markers = [*markers, *[markers[-1]] * (BUCKETS - len(markers))]
    return compare_markers(all_markers, expected).status


def test_how_markers_compare_with_sql():
    ours, older = Marker(catalog="ours", generation=1), Marker(catalog="ours", generation=0)
    assert status(ours) is IndexStatus.RIGHT
    assert status(ours, None) is IndexStatus.MISSING
    assert status(None) is IndexStatus.MISSING
    assert status(ours, Marker(catalog="theirs", generation=1)) is IndexStatus.FOREIGN
    assert status(ours, older, ours) is IndexStatus.BEHIND
    assert status(ours, Marker(catalog="ours", generation=3)) is IndexStatus.AHEAD
