"""Copies of devices in memory."""

from engine.redis.devices import DeviceCopy, DeviceKey, DeviceRecord, RecentCopies

RECORD = DeviceRecord(1, None, False)


def test_a_copy_is_fresh_for_four_seconds_from_its_reading_of_sql():
    copies, key, absent = RecentCopies(), DeviceKey(1, "a"), DeviceKey(1, "absent")
    copies.remember({key: DeviceCopy(100.0, RECORD), absent: DeviceCopy(100.0, None)})
    assert copies.fresh([key, absent, DeviceKey(2, "a")], 103.9) == {key: RECORD, absent: None}
    assert copies.fresh([key], 104.0) == {}
    assert copies.fresh([key], 99.9) == {}, "the clock was put back"


def test_copies_are_bounded():
    copies = RecentCopies()
    for number in range(100_000):
        copies.fresh([], 100.0)
        copies.remember({DeviceKey(1, str(number)): DeviceCopy(100.0, None)})
    assert len(copies._young) + len(copies._old) <= 40_002
