"""What the topics add up to, record by record."""

import pytest

from engine.cli.verify.recount import DeviceCounts, DeviceShare, count_all
from engine.kafka.decoding import Record
from tests.unit.engine.records import record
from tests.unit.verify.records import received, recount, sent, signed_in

LONG_AGO = "2026-11-01T10:00:00+0000"


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([received(), received()], {(1, "a"): DeviceCounts(detections=2, traces=2)}),
        ([received(at=LONG_AGO)], {(1, "a"): DeviceCounts(detections=1)}),
        ([received(minor=3)], {(1, "a"): DeviceCounts(uncounted=1)}),
        ([received(minor=9)], {}),
        (
            [received(), received(minor=2)],
            {
                (1, "a"): DeviceCounts(detections=1, traces=1),
                (2, "a"): DeviceCounts(detections=1, traces=1),
            },
        ),
    ],
)
def test_detections(records: list[Record], expected: dict[tuple[int, str], DeviceCounts]) -> None:
    counting = recount()
    assert count_all(records, counting.add_detection) == 0
    assert counting.devices == expected


def test_detections_of_triples_that_the_catalog_lacks_are_kept_by_udid() -> None:
    counting = recount()
    count_all(
        [received(minor=9), received(minor=9), received("b", minor=8)], counting.add_detection
    )
    assert counting.unknown_beacons == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([sent(1), sent(2), sent(1)], {(1, "a"): DeviceCounts(notifications=2, receptions=2)}),
        ([sent(1, at=LONG_AGO)], {(1, "a"): DeviceCounts(notifications=1)}),
        ([sent(1, company=3)], {}),
    ],
)
def test_notifications(
    records: list[Record], expected: dict[tuple[int, str], DeviceCounts]
) -> None:
    counting = recount()
    assert count_all(records, counting.add_notification) == 0
    assert counting.devices == expected


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([signed_in(), signed_in(at=None)], {(1, "a"): DeviceCounts(authentications=2)}),
        ([signed_in(at=LONG_AGO)], {}),
        ([signed_in("expired"), signed_in("off")], {(1, "a"): DeviceCounts(refused=2)}),
        ([signed_in("never heard of")], {}),
    ],
)
def test_authentications(
    records: list[Record], expected: dict[tuple[int, str], DeviceCounts]
) -> None:
    counting = recount()
    assert count_all(records, counting.add_authentication) == 0
    assert counting.devices == expected


@pytest.mark.parametrize(
    "value", [None, b"", b"no json", b"{}", b'{"device": {"udid": "a\\u0000"}}']
)
def test_a_malformed_record_counts_nothing(value: bytes | None) -> None:
    counting = recount()
    for add in (counting.add_detection, counting.add_notification, counting.add_authentication):
        assert count_all([record(value)], add) == 1
    assert counting.devices == {}


def test_shares_add_up_to_the_total() -> None:
    records = [received(f"phone {number}") for number in range(50)]
    whole = recount()
    count_all(records, whole.add_detection)
    parts = [recount(DeviceShare(number, 3)) for number in range(3)]
    for part in parts:
        count_all(records, part.add_detection)
    assert all(part.devices for part in parts)
    assert sum(len(part.devices) for part in parts) == len(whole.devices)
    assert {key: counts for part in parts for key, counts in part.devices.items()} == whole.devices
