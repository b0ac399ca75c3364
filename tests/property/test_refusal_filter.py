"""The compiled filter refuses only what decoder and rules refuse, with the same decision."""

import json
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.decoding import UNDECODABLE
from engine.kafka.detections import decode_record
from engine.trigger.grants import decider
from rules.model import Reason
from tests.property.refusing_mall import EXPONENT, Mall, at_noon, shared_mall
from tests.property.test_decision import MAX_AGE
from tests.property.written_detections import (
    ANYTHING,
    DEVICES,
    LONG,
    MINORS,
    MS,
    NOON,
    SIGNALS,
    TIMES,
    UNUSUAL_NUMBERS,
    UNUSUAL_SIGNALS,
    UNUSUAL_TEXTS,
    UNUSUAL_TIMES,
    UNUSUAL_UUIDS,
    UNUSUAL_ZONES,
    UUIDS,
    damaged,
    detections,
    encoded,
    usual,
)
from tests.unit.rules.records import campaign


@settings(max_examples=500)
@given(detections(unusual=False))
def test_usual_detections_that_fire_nothing_are_refused(value: str) -> None:
    mall = shared_mall()
    refused = mall.agrees(value.encode())
    decision = mall.decided(at_noon(value.encode()))
    aged = '"old"' in value  # their claims are looked up, and are young then
    assert refused or aged or decision is None or decision.granted


@settings(max_examples=500)
@given(detections(unusual=True))
def test_whatever_is_refused_is_refused_by_the_rules(value: str) -> None:
    shared_mall().agrees(encoded(value))


@settings(max_examples=500)
@given(damaged())
def test_damaged_records_are_never_mistaken(value: bytes) -> None:
    shared_mall().agrees(value)


def test_each_device_at_each_beacon_at_each_time() -> None:
    mall, refused = Mall(), 0
    for udid, minor, at in product(DEVICES[:5], MINORS, TIMES):
        device = f'{{"udid":"{udid}"}}'
        value = usual(device=device, minor=minor, detected_at=at)
        refused += mall.agrees(value.encode())
    for signal, power in product(SIGNALS, (*SIGNALS, "null")):
        value = usual(proximity="null", rssi=signal, tx_power=power)
        refused += mall.agrees(value.encode())
    assert refused > 500


def test_each_unusual_value_alone() -> None:
    mall = Mall()
    unusual = {
        "uuid": UNUSUAL_UUIDS,
        "major": UNUSUAL_NUMBERS,
        "minor": UNUSUAL_NUMBERS,
        "proximity": UNUSUAL_ZONES,
        "detected_at": UNUSUAL_TIMES,
        "ip": UNUSUAL_TEXTS,
        "rssi": UNUSUAL_SIGNALS,
        "tx_power": UNUSUAL_SIGNALS,
        "accuracy": ANYTHING,
        "device": [*ANYTHING, *(f'{{"udid":"{udid}"}}' for udid in (*DEVICES, "", "c"))],
    }
    for name, found in unusual.items():
        for text in found:
            for minor in "137":
                mall.agrees(encoded(usual(**{"minor": minor, name: text})))
                by_signal = {"minor": minor, "proximity": "null", "rssi": "-60", name: text}
                mall.agrees(encoded(usual(**by_signal)))
    for name in ("name", "version", "model", "token_push", "id_connector", "battery"):
        for text in ANYTHING:
            device = f'{{"udid":"sent","{name}":{text}}}'
            mall.agrees(encoded(usual(device=device)))


@pytest.mark.parametrize("value", [None, b"", b"{}", b"null", b"[]", b"{", usual()[:-1].encode()])
def test_what_is_no_detection_is_left_to_the_decoder(value: bytes | None) -> None:
    assert Mall().filtered(value) is None


@pytest.mark.parametrize("name", ["uuid", "major", "minor", "device", "proximity", "udid"])
def test_a_detection_that_lacks_a_field_is_left_to_the_decoder(name: str) -> None:
    mall, whole, lacking = Mall(), usual().encode(), json.loads(usual())
    lacking["device"].pop(name, None)
    lacking.pop(name, None)
    assert mall.agrees(whole)  # what was read of it must not be taken for the other's
    assert mall.filtered(json.dumps(lacking).encode()) is None


@pytest.mark.parametrize(
    "more",
    [
        *('"proximity2":"far"', '"minority":7', '"minor_":"7"', '"major1":7', '"detected_at_ms":0'),
        *('"rssi2":0', '"tx_power_":-99', '"ip6":1', '"devices":1', '"uuid4":"x"'),
    ],
)
def test_unknown_fields_do_not_count(more: str) -> None:
    plain = usual(rssi="-60", proximity="null")
    assert shared_mall().agrees(f"{plain[:-1]},{more}}}".encode())
    device = more.replace('"', '"udid', 1)  # a name that begins as udid does
    for added in (more, device, '"names":5', '"id_connector2":"x"'):
        assert shared_mall().agrees(usual(device=f'{{"udid":"sent",{added}}}').encode())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proximity", '"far"'),
        ("detected_at", "0"),
        ("detected_at", '"2026-11-20T12:00:00Z"'),
        ("rssi", "-99"),
        ("tx_power", "-99"),
        ("device", '{"udid":"new"}'),
        ("device", '{"name":"x"}'),
        ("device", '{"udid":"sent","udid":"new"}'),
        ("device", f'{{"udid":"{LONG}","udid":"sent"}}'),
        ("minor", '"7"'),
        ("minor", '"000001"'),
        ("uuid", '"x"'),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_field_may_be_there_twice(name: str, text: str, order: int) -> None:
    """Then the last one counts, and the decoder checks both."""
    for signal in ("null", '"near"'):
        plain = usual(rssi="-60", proximity=signal)[1:-1]
        parts = [plain, f'"{name}":{text}', f'"{name}":null']
        for some in (parts[:2], parts):
            shared_mall().agrees(("{" + ",".join(some[::order]) + "}").encode())


@pytest.mark.parametrize("end", [b"x", b"}", b"\0", b",", b"{}"])
def test_nothing_may_follow_a_detection(end: bytes) -> None:
    mall = Mall()
    assert mall.agrees(usual().encode() + b"\n ")
    assert mall.filtered(usual().encode() + end) is None


@given(
    st.decimals(-150, 20, places=3),
    st.decimals(-100, 0, places=1),
)
def test_the_zone_of_a_signal_is_that_of_the_rules(rssi: Decimal, power: Decimal) -> None:
    mall = shared_mall()
    value = usual(proximity="null", rssi=f"{rssi:f}", tx_power=f"{power:f}", minor="6").encode()
    if not mall.agrees(value):  # near enough for a campaign that is not throttled
        decision = mall.decided(at_noon(value))
        assert decision is not None
        assert decision.granted


def test_an_edited_beacon_is_decided_anew() -> None:
    mall = Mall()
    spellings = [usual(uuid=uuid).encode() for uuid in UUIDS]
    assert all(map(mall.agrees, spellings))
    mall.put(1, campaign(id=1, delay=1))
    assert not any(map(mall.filtered, spellings))
    decision = mall.decided(at_noon(usual().encode()))
    assert decision is not None
    assert decision.granted


def test_a_beacon_that_is_new_is_no_longer_unknown() -> None:
    mall = Mall()
    value = usual(minor="7").encode()
    assert mall.agrees(value)
    mall.put(7, campaign(id=9))
    assert mall.filtered(value) is None


def test_a_beacon_that_left_the_cache_is_not_kept() -> None:
    mall = Mall()
    assert mall.agrees(usual().encode())
    mall.cache.drop_all()
    assert mall.filtered(usual().encode()) is None


def test_a_claim_that_has_expired_refuses_nothing() -> None:
    mall = Mall()
    mall.put(1, campaign(id=1, delay=86_400))
    value = usual(device='{"udid":"brief"}').encode()
    mall.remembered.remember("brief", 1, NOON - 30, until=NOON + 1)
    assert mall.decided(at_noon(value)) is mall.filtered(value)
    later = at_noon(value)
    others, refused = mall.filter.split([later], mall.remembered, NOON + 1)
    assert (others, refused) == ([later], [])


def test_a_new_phase_is_left_to_the_rules() -> None:
    mall = Mall()
    mall.put(1, campaign(id=1, delay=86_400, start_minute=12 * 60, end_minute=13 * 60))
    mall.decided(at_noon(usual(device='{"udid":"new"}').encode()))
    assert mall.agrees(usual().encode())
    assert mall.filtered(usual(detected_at=str(MS - 1)).encode()) is None
    evening = usual(detected_at='"2026-11-20T13:00:00Z"').encode()
    later = NOON + 3600
    others, _ = mall.filter.split([at_noon(evening)], mall.remembered, later)
    assert len(others) == 1
    detection = decode_record(others[0], EXPONENT)
    closed = decider(later, MAX_AGE, mall.remembered)(detection, mall.cache.known[detection.key])
    assert closed.reason is Reason.OUTSIDE_HOURS
    assert mall.filter.split(others, mall.remembered, later) == ([], [closed])


def test_records_keep_their_order() -> None:
    mall = Mall()
    values = [usual(device=f'{{"udid":"{udid}"}}') for udid in ("sent", "new", "sent", "some")]
    batch = [at_noon(value.encode(), offset) for offset, value in enumerate([*values, "{"])]
    others, refused = mall.filter.split(batch, mall.remembered, NOON)
    assert [each.offset for each in others] == [1, 3, 4]
    assert len(refused) == 2


def test_undecodable_records_are_never_refused() -> None:
    """The tests above would raise these; here is one for certain."""
    mall = Mall()
    with pytest.raises(UNDECODABLE):
        mall.decided(at_noon(usual(ip="1").encode()))
    assert mall.filtered(usual(ip="1").encode()) is None
