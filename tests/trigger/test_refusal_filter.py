"""The compiled filter refuses only what decoder and rules refuse, with the same decision."""

import json
import os
import random
import time
from collections.abc import Sequence
from decimal import Decimal
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.detections import UNDECODABLE, decode_record
from engine.trigger.grants import decide_from_memory
from rules.model import Cap, CompanyRules, QuietHours, Reason
from tests.rules.records import campaign
from tests.rules.test_decision_oracle import MAX_AGE
from tests.trigger.refusing_mall import EXPONENT, Mall, at_noon, shared_mall
from tests.trigger.written_detections import (
    ANYTHING,
    DEVICES,
    KEYS,
    LONG,
    MINORS,
    MS,
    NOON,
    NUMBERS,
    OTHERS,
    PLACES,
    SIGNALS,
    TEXTS,
    TIMES,
    UNUSUAL_KEYS,
    UNUSUAL_NUMBERS,
    UNUSUAL_SIGNALS,
    UNUSUAL_TEXTS,
    UNUSUAL_TIMES,
    UNUSUAL_UUIDS,
    UNUSUAL_ZONES,
    UUIDS,
    ZONES,
    encoded,
    usual,
)

QUIET = CompanyRules(company_id=1, quiet_hours=QuietHours(660, 780), time_zone="UTC")


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
    for name, (plain, strange) in OTHERS.items():
        for text, key in product((*plain, *strange), (*KEYS, *UNUSUAL_KEYS)):
            for zone in ("null", '"near"', '"nowhere"', "9"):
                fields = f'"{name}":{text},"api_key":{key},"proximity":{zone}'
                mall.agrees(encoded(f'{{{fields},"device":{{"udid":"sent"}}}}'))
    for name in ("name", "version", "model", "token_push", "id_connector", "battery", "time_zone"):
        for text in ANYTHING:
            device = f'{{"udid":"sent","{name}":{text}}}'
            mall.agrees(encoded(usual(device=device)))


def test_quiet_hours_and_caps_are_left_to_the_rules() -> None:
    """Where nothing is open it refuses, and where all is throttled and no hours are set."""
    mall, value = Mall(), usual(device='{"udid":"sent"}').encode()
    daily, closed = campaign(id=1, delay=86_400), campaign(id=4, end_minute=1)
    free = campaign(id=9)
    capped = CompanyRules(company_id=1, caps=(Cap(1, 60),))
    mall.remembered.remember_capped("sent", 1, (MS - 5000, MS + 5000, 0), NOON)
    for rules in (capped, QUIET, msgspec.structs.replace(QUIET, time_zone="Asia/Tokyo")):
        for campaigns, is_refused in (
            ((closed,), True),
            ((daily, closed), rules is capped),
            ((daily, free), False),
        ):
            mall.put(1, *campaigns, rules=rules)
            mall.decided(at_noon(value))
            assert mall.agrees(value) == is_refused, (rules, campaigns)
    mall.put(1, daily, free, rules=capped)
    decision = mall.decided(at_noon(value))
    assert decision is not None
    assert dict(decision.by_campaign) == {1: Reason.THROTTLED, 9: Reason.CAPPED}


@pytest.mark.parametrize("value", [None, b"", b"{}", b"null", b"[]", b"{", usual()[:-1].encode()])
def test_what_is_no_detection_is_left_to_the_decoder(value: bytes | None) -> None:
    assert Mall().filtered(value) is None


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
    mall.remembered.remember("brief", [campaign(id=1, delay=86_400)], NOON - 30, NOON, briefly=True)
    assert mall.decided(at_noon(value)) is mall.filtered(value)
    later = at_noon(value)
    split = mall.filter.split([later], mall.remembered, NOON + 5)
    assert split == ([later], [], [])


def test_a_new_phase_is_left_to_the_rules() -> None:
    mall = Mall()
    mall.put(1, campaign(id=1, delay=86_400, start_minute=12 * 60, end_minute=13 * 60))
    mall.decided(at_noon(usual(device='{"udid":"new"}').encode()))
    assert mall.agrees(usual().encode())
    assert mall.filtered(usual(detected_at=str(MS - 1)).encode()) is None
    evening = usual(detected_at='"2026-11-20T13:00:00Z"').encode()
    later = NOON + 3600
    others, _, _ = mall.filter.split([at_noon(evening)], mall.remembered, later)
    assert len(others) == 1
    detection = decode_record(others[0], EXPONENT)
    known = mall.cache.known[detection.key]
    closed = decide_from_memory(detection, known, mall.remembered, later, MAX_AGE)
    assert closed.reason is Reason.OUTSIDE_HOURS
    assert mall.filter.split(others, mall.remembered, later) == ([], [closed], [])


def test_records_keep_their_order() -> None:
    mall = Mall()
    values = [usual(device=f'{{"udid":"{udid}"}}') for udid in ("sent", "new", "sent", "some")]
    batch = [at_noon(value.encode(), offset) for offset, value in enumerate([*values, "{"])]
    others, refused, _ = mall.filter.split(batch, mall.remembered, NOON)
    assert [each.offset for each in others] == [1, 3, 4]
    assert len(refused) == 2


FUZZ_SECONDS = float(os.environ.get("PROXIMITY_TEST_FUZZ_SECONDS", "3"))
_TEXT = (TEXTS[:2], ('"x"', "7", '"é"', "[]"))
_FIELDS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "uuid": (UUIDS, UNUSUAL_UUIDS),
    "major": (NUMBERS, UNUSUAL_NUMBERS),
    "minor": (MINORS, UNUSUAL_NUMBERS),
    "proximity": (ZONES, UNUSUAL_ZONES),
    "rssi": (SIGNALS, UNUSUAL_SIGNALS),
    "tx_power": (SIGNALS, UNUSUAL_SIGNALS),
    "detected_at": (TIMES, UNUSUAL_TIMES),
    "ip": _TEXT,
    "accuracy": (SIGNALS, ANYTHING),
}
_OTHER = {name: _FIELDS[name] for name in ("rssi", "tx_power", "detected_at", "ip", "accuracy")}
_OTHER["api_key"] = KEYS, UNUSUAL_KEYS
_KINDS = {"beacon": _FIELDS} | {name: _OTHER | {name: texts} for name, texts in OTHERS.items()}
_DEVICE: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "udid": (('"sent"', '"read"'), ('""', f'"{LONG}"', "1")),
    **dict.fromkeys(("name", "version", "model", "token_push"), _TEXT),
    "id_connector": (("7", "null"), ("1.5", '"7"')),
}


class Fuzz:
    """Records that are often refused, each with at most one oddity."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def record(self, kind: str) -> bytes:
        """A record with a place of this kind."""
        of = _KINDS[kind]
        oddity = self._dice.choice((*["none"] * 8, "absent", "twice", "value", "byte", "place"))
        device = self._object(_DEVICE, "device" if oddity in ("twice", "value") else oddity)
        found = self._parts(of) | {"device": device}
        names = self._dice.sample(list(found), len(found))
        fields = [(name, found[name]) for name in names]
        if oddity == "twice":
            name = self._dice.choice(names)
            again = device if name == "device" else self._value(of[name])
            fields.insert(self._dice.randrange(len(fields) + 1), (name, again))
        elif oddity == "absent":
            fields.pop()
        elif oddity == "place":
            place = self._dice.choice(PLACES)
            fields.insert(self._dice.randrange(len(fields) + 1), place)
        elif oddity == "value":
            at = self._dice.randrange(len(fields))
            name = fields[at][0]
            if name != "device":
                fields[at] = name, self._dice.choice(of[name][1])
        value = bytearray(encoded(self._written(fields)))
        if oddity == "byte":
            at, byte = self._dice.randrange(len(value)), self._dice.randrange(256)
            value[at : at + self._dice.randrange(2)] = bytes([byte] * self._dice.randrange(2))
        return bytes(value)

    def _object(self, of: dict[str, tuple[Sequence[str], Sequence[str]]], oddity: str) -> str:
        found = list(self._parts(of).items())
        if oddity == "device" and self._dice.random() < 0.3:
            name = self._dice.choice(list(of))
            again = self._dice.choice(of[name][self._dice.randrange(2)])
            found.insert(self._dice.randrange(len(found) + 1), (name, again))
        return self._written(found)

    def _parts(self, of: dict[str, tuple[Sequence[str], Sequence[str]]]) -> dict[str, str]:
        return {name: self._value(values) for name, values in of.items()}

    def _value(self, values: tuple[Sequence[str], Sequence[str]]) -> str:
        return self._dice.choice(values[0])

    def _written(self, fields: list[tuple[str, str]]) -> str:
        space = self._dice.choice(("", " ", "\n"))
        return "{" + f",{space}".join(f'"{name}":{space}{text}' for name, text in fields) + "}"


@pytest.mark.timeout(FUZZ_SECONDS + 60)
def test_mutated_records_are_refused_only_as_the_rules_refuse_them() -> None:
    """Ten minutes with PROXIMITY_TEST_FUZZ_SECONDS=600."""
    mall, seed = Mall(), random.randrange(2**32)
    fuzz, tried, refused = Fuzz(seed), 0, dict.fromkeys(_KINDS, 0)
    until = time.monotonic() + FUZZ_SECONDS
    while time.monotonic() < until or tried < 500:
        tried += 1
        for kind in _KINDS:
            value = fuzz.record(kind)
            try:
                refused[kind] += mall.agrees(value)
            except UNDECODABLE:
                pytest.fail(f"refused, and not decodable: {value!r} (seed {seed})")
    assert min(refused.values()) >= tried / 2, f"{refused} of {tried} each"


def test_a_field_that_is_there_twice_is_left_to_the_decoder() -> None:
    """`"proximity":9,"proximity":"near"` was counted, and a dead letter as well."""
    mall, plain = Mall(), usual(rssi="-60", tx_power="null")
    assert mall.agrees(plain.encode())
    for name, text in json.loads(plain).items():
        first = f'"{name}":{json.dumps(text)}'
        for begin, end in (("{" + first + ",", plain[1:]), (plain[:-1], f",{first}}}")):
            assert mall.filtered((begin + end).encode()) is None
    assert mall.filtered(usual(proximity='9,"proximity":"near"').encode()) is None


def test_unknown_fields_do_not_count() -> None:
    for more in ('"proximity2":"far"', '"minor_":"7"', '"major1":7', '"detected_at_ms":0'):
        plain = usual(rssi="-60", proximity="null", device=f'{{"udid":"sent","udid2":1,{more}}}')
        assert shared_mall().agrees(f"{plain[:-1]},{more}}}".encode())


@pytest.mark.parametrize(("name", "text"), PLACES)
def test_a_record_that_may_name_another_place_is_left_to_the_decoder(name: str, text: str) -> None:
    mall = Mall()
    assert mall.filtered(usual(**{name: text}).encode()) is None
    apart = f'{{"{name}":{text},"device":{{"udid":"sent"}}}}'
    mall.agrees(apart.encode())


def test_a_position_outside_may_end_a_visit() -> None:
    where = '{"position":{"latitude":0,"longitude":0},"device":{"udid":"sent"},"api_key":'
    mall = Mall()
    assert mall.agrees(f'{where}"ours"}}'.encode())
    for unsure in ("visits", "new"):  # nobody has read the rules of the new one's company
        assert mall.filtered(f'{where}"{unsure}"}}'.encode()) is None


def test_every_byte_replaced() -> None:
    mall, whole = Mall(), [usual(rssi="-60").encode()]
    for name, (plain, _) in OTHERS.items():
        text = f'{{"{name}":{plain[0]},"api_key":"ours","device":{{"udid":"sent"}}}}'
        whole.append(text.encode())
    assert all(map(mall.agrees, whole))
    for each in whole:
        for at in range(len(each)):
            for byte in b'\0 "\\{}[]:,.-019eE\x7f\x80x':
                mall.agrees(each[:at] + bytes([byte]) + each[at + 1 :])
            mall.agrees(each[:at] + each[at + 1 :])
