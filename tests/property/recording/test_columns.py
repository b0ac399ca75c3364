"""Detections that are recorded in columns lead to the same rows as their objects."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.recorder.rows import DeviceIdentity
from tests.property.recording.both_ways import (
    NOW,
    PLACES,
    Devices,
    Written,
    both_agree,
    left_to_the_decoder,
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


@given(st.lists(st.integers(MS - 1_200_000, MS + 600_000), min_size=1, max_size=20))
def test_the_last_minutes(times: list[int]) -> None:
    batch = [Written(usual(detected_at=str(at)).encode(), at) for at in times]
    assert sum(both_agree(batch, now=MS / 1000).recent.values()) <= len(times)


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
    """Whether it was written as usual or not, and whoever has read it."""
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
    from tests.property.recording.both_ways import EXPONENT, RULE, records_of
    from tests.servers.compiled import compiled

    scanner = compiled("engine.recorder.detection_batch").DetectionScanner(EXPONENT)
    batch, _ = scanner.read(records_of([Written(usual().encode())]))
    counted = CountedColumns(batch, PLACES, rule=RULE, trace="all")
    for told in ([], Devices().told([DeviceIdentity(1, "other")])):
        with pytest.raises(KeyError):
            counted.rows(told, NOW)
