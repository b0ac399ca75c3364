"""Detections that are recorded in columns lead to the same rows as their objects."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.recorder.rows import DeviceIdentity
from tests.property.recording.both_ways import (
    NOW,
    PLACES,
    RULE,
    Devices,
    Written,
    both_agree,
    left_to_the_decoder,
    records_of,
    scanner,
)
from tests.property.written_detections import (
    ANYTHING,
    DEVICES,
    MS,
    SIGNALS,
    TIMES,
    UNUSUAL_NUMBERS,
    UNUSUAL_SIGNALS,
    UNUSUAL_TEXTS,
    UNUSUAL_TIMES,
    UNUSUAL_UUIDS,
    UNUSUAL_ZONES,
    UUIDS,
    ZONES,
    damaged,
    detections,
    encoded,
    usual,
)

_DAY = 86_400_000
_arrivals = st.one_of(
    st.sampled_from([MS, MS, MS, MS + 600_000, -1, 0, MS - 4 * _DAY, MS + 2 * _DAY, 2**62]),
    st.integers(MS - 2 * _DAY, MS + _DAY),
)
_numbers = st.frozensets(st.integers(1, 8))
_devices = st.builds(Devices, _numbers, _numbers)
_usual = detections(unusual=False).map(str.encode)
_unusual = detections(unusual=True).map(encoded)


def _batches(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Written]]:
    return st.lists(st.builds(Written, values, _arrivals), max_size=12)


@settings(max_examples=300)
@given(_batches(_usual), _devices)
def test_usual_detections(batch: list[Written], devices: Devices) -> None:
    assert left_to_the_decoder(*(each.value for each in batch)) == []
    both_agree(batch, devices)


@settings(max_examples=300)
@given(_batches(st.one_of(_usual, _unusual, damaged())), _devices)
def test_whatever_comes(batch: list[Written], devices: Devices) -> None:
    both_agree(batch, devices)


@given(
    st.lists(st.tuples(st.integers(MS - 3 * _DAY, MS + _DAY), st.integers(1, 7)), max_size=20),
    st.integers(MS - _DAY, MS + _DAY),
    _devices,
)
def test_detections_of_any_time(
    times: list[tuple[int, int]], arrived: int, devices: Devices
) -> None:
    batch = [
        Written(usual(minor=str(minor), detected_at=str(at)).encode(), arrived)
        for at, minor in times
    ]
    assert left_to_the_decoder(*(each.value for each in batch)) == []
    both_agree(batch, devices)
    both_agree([Written(each.value, at) for each, (at, _) in zip(batch, times, strict=True)])


_MIDNIGHT = MS + _DAY // 2  # in UTC, where one beacon is; its batches begin and end there


@pytest.mark.parametrize("minors", ["3", "12"])
@pytest.mark.parametrize("zone_offset", [0, 8 * 3_600_000])
def test_midnight_and_the_greatest_age(minors: str, zone_offset: int) -> None:
    """A detection that comes 300 s later counts on its own day, another on that of its arrival."""
    midnight = _MIDNIGHT + zone_offset  # of a beacon in UTC, or of two in Los Angeles
    after = (-300_001, -300_000, -299_999, -1, 0, 1, 299_999, 300_000, 300_001)
    for arrived in (-60_000, 0, 1, 60_000):
        for step in (1, -1):
            batch = [
                Written(
                    usual(minor=minor, detected_at=str(midnight + arrived + at)).encode(),
                    midnight + arrived,
                )
                for at in after[::step]
                for minor in minors
            ]
            both_agree(batch, now=midnight / 1000 + 900)
    nights = [
        Written(usual(minor=m, detected_at=str(midnight + n)).encode(), midnight)
        for n in (-1, 0, -1)
        for m in minors
    ]
    rows = both_agree(nights, now=midnight / 1000 + 900)
    assert rows.statistics is not None
    days = {key.day for key in rows.statistics.figures}
    assert len(days) == (2 if (minors == "3") == (zone_offset == 0) else 1)


@given(
    st.lists(st.integers(MS - 1_200_000, MS + 600_000), min_size=1, max_size=20),
    st.frozensets(st.integers(1, 3)),
)
def test_the_last_minutes(times: list[int], tests: frozenset[int]) -> None:
    batch = [
        Written(usual(detected_at=str(at), device=f'{{"udid":"{at % 3}"}}').encode(), at)
        for at in times
    ]
    both_agree(batch, Devices(tests=tests), now=MS / 1000)


def test_the_first_and_the_last_millisecond_of_the_last_minutes() -> None:
    end = MS + 60_000  # of the minute that has just begun
    begin = end - 15 * 60_000
    times = (begin - 1, begin, begin + 59_999, begin + 60_000, MS, end - 1, end)
    batch = [Written(usual(detected_at=str(at)).encode(), at) for at in times]
    for now in (MS, MS + 1, end - 1):
        recent = both_agree(batch, now=now / 1000).recent
        assert sum(recent.values()) == len(times) - 2
        assert sorted(recent.values()) == [1, 2, 2]
    assert not both_agree(batch[3:6], Devices(tests={1}), now=MS / 1000).recent


def test_records_without_a_credible_time_of_arrival() -> None:
    """At the edges of the times at which a record can have come, and can leave a trace."""
    now, retention = MS, 3 * _DAY
    edges = [now - retention, now + 300_000, now - retention - _DAY, now + _DAY, now]
    near = sorted({edge + more for edge in edges for more in (-300_001, -1, 0, 1, 300_000)})
    values = {at: usual(detected_at=str(at)).encode() for at in near}
    for arrived in near:
        both_agree([Written(values[at], arrived) for at in near], now=now / 1000)


def test_each_unusual_value_alone_and_between_usual_ones() -> None:
    values = {
        "uuid": (*UUIDS, *UNUSUAL_UUIDS),
        "major": UNUSUAL_NUMBERS,
        "minor": UNUSUAL_NUMBERS,
        "proximity": (*ZONES, *UNUSUAL_ZONES),
        "detected_at": (*TIMES, *UNUSUAL_TIMES),
        "ip": UNUSUAL_TEXTS,
        "rssi": UNUSUAL_SIGNALS,
        "tx_power": UNUSUAL_SIGNALS,
        "device": [*ANYTHING, *(f'{{"udid":"{udid}"}}' for udid in (*DEVICES, "", "c"))],
    }
    first = usual(device='{"udid":"sent","name":"a","token_push":"t","id_connector":1}').encode()
    last = usual(device='{"udid":"sent","version":"2"}', ip='"1.2.3.4"').encode()
    for name, texts in values.items():
        for text in texts:
            for more in ({}, {"proximity": "null", "rssi": "-60"}):
                value = encoded(usual(**{**more, name: text}))
                both_agree([Written(each) for each in (first, value, last)])
    for signal in SIGNALS:
        both_agree([Written(usual(proximity="null", rssi=signal).encode())])


_FACTS = ("name", "version", "model", "token_push")


@pytest.mark.parametrize("name", _FACTS)
def test_facts_of_any_length(name: str) -> None:
    """In both ways of reading: a letter that is not ASCII is left to the decoder."""
    for size in (0, 1, 254, 255, 256, 4095, 4096, 4097):
        for letter in "xé":
            device = json.dumps({"udid": "a", name: letter * size}, ensure_ascii=False)
            earlier = usual(device=f'{{"udid":"a","{name}":"before"}}').encode()
            both_agree([Written(earlier), Written(usual(device=device).encode())])
    assert (
        left_to_the_decoder(usual(device=f'{{"udid":"a","{name}":"{"x" * 5000}"}}').encode()) == []
    )


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 5000])
def test_addresses_of_any_length(size: int) -> None:
    for letter in ("x", "é", "手", "\\u0000"):
        (row,) = both_agree([Written(usual(ip=f'"{letter * size}"').encode())]).detections
        assert len(row.ip or "") <= 64


@pytest.mark.parametrize(
    "number", ["0", "7", "999999999999999", "1234567890123456", str(2**63 - 1), str(2**63), "-5"]
)
def test_ids_at_the_connector(number: str) -> None:
    values = [usual(device=f'{{"udid":"a","id_connector":{text}}}') for text in ("3", number)]
    both_agree([Written(value.encode()) for value in values])


@pytest.mark.parametrize("order", [1, -1])
def test_the_last_fact_that_is_told_counts(order: int) -> None:
    """The compiled module reads some of these messages, the decoder the others."""
    texts = [
        *('{"udid":"a","name":"one","version":"1","id_connector":4}', '{"udid":"a","name":null}'),
        *('{"udid":"a","name":"z\\u0077ei","token_push":"t\\u0000"}', '{"udid":"a","name":""}'),
        '{"udid":"a","version":"\\u0000","name":"x","name":"three"}',
    ]
    for end in range(1, 6):
        values = [usual(device=text).encode() for text in texts[:end]][::order]
        both_agree([Written(value) for value in values])


def test_a_udid_in_several_companies_is_several_devices() -> None:
    batch = [
        Written(usual(minor=minor, device=f'{{"udid":"{udid}","name":"{minor}"}}').encode())
        for minor in "1464123"
        for udid in ("b", "a", "é")
    ]
    rows = both_agree(batch, Devices(tests={1}, new={2, 3}))
    assert len({row.device_id for row in rows.detections}) == 9
    assert {PLACES[key].company_id for key in PLACES} == {1, 2, 3}


def test_spellings_of_a_beacon_are_one_beacon() -> None:
    values = [usual(uuid=uuid, minor=minor) for uuid in UUIDS for minor in ("1", '"01"', '"1"')]
    rows = both_agree([Written(value.encode()) for value in values])
    assert rows.statistics is not None
    assert sorted(f.detections for f in rows.statistics.figures.values()) == [9, 9]


@pytest.mark.parametrize("value", [None, b"", b"{}", b"null", b"{", usual()[:-1].encode()])
def test_what_is_no_detection_counts_nowhere(value: bytes | None) -> None:
    batch = [Written(value), Written(usual().encode()), Written(value)]
    assert left_to_the_decoder(value) == [value]
    assert len(both_agree(batch).detections) == 1
    assert both_agree([Written(value)]).detections == []


def test_nothing_counts_without_active_beacons() -> None:
    assert both_agree([Written(usual().encode())], places={}).detections == []
    assert both_agree([]).detections == []


def test_a_batch_of_thousands() -> None:
    batch = [
        Written(usual(minor=str(1 + n % 7), device=f'{{"udid":"{n % 1000}"}}').encode(), MS + n)
        for n in range(5000)
    ]
    rows = both_agree(batch, Devices(tests=range(1, 100), new=range(50, 500)))
    assert len(rows.detections) == sum(1 for n in range(5000) if n % 7 != 6)


def test_a_device_that_sql_does_not_tell_is_an_error() -> None:
    from engine.recorder.detection_columns import CountedColumns

    batch, _ = scanner().read(records_of([Written(usual().encode())]))
    counted = CountedColumns(batch, PLACES, rule=RULE, trace="all")
    for told in ([], Devices().told([DeviceIdentity(1, "other")])):
        with pytest.raises(KeyError):
            counted.rows(told, NOW)
