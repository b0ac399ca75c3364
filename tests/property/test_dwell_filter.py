"""The compiled filter recognises only what decoder and rules would decide just so."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.decoding import UNDECODABLE
from engine.kafka.detections import BeaconKey, decode_record
from engine.trigger.beacon_cache import BeaconCache, IndexedBeacon
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from engine.trigger.grants import decider
from rules.model import Zone
from rules.outcome import Decision
from tests.property.test_decision import MAX_AGE
from tests.servers.compiled import compiled
from tests.unit.engine.records import record
from tests.unit.rules.records import UUID, beacon, campaign, epoch

NOON = epoch("2026-11-20T12:00:00Z")
MS = int(NOON * 1000)
LONG = "x" * 256
DEVICES = ("a", "b", LONG, "\x7f", "é")

# Each value of a field as JSON. The first ones are those that the filter has to recognise.
UUIDS = (f'"{UUID}"', f'"{UUID.upper()}"', f'"{UUID.replace("-", "")}"')
UNUSUAL_UUIDS = (f'" {UUID}"', f'"{UUID}0"', f'"{UUID[1:]}"', '"\\u0065"', "1", "null", '""')
NUMBERS = ("1", '"1"', '"01"', '"00001"')
UNUSUAL_NUMBERS = (
    *("01", "1.0", "-1", "65537", "65536", "1e0", "true", "null", "+1", "1_0", "000001"),
    *('"1_0"', '" 1"', '"1 "', '"000001"', '"65537"', '"-1"', '"+1"', '""', '"one"', '"１"'),
)
ZONES = ('"near"', '"ProximityNear"', '"NEAR"', "2", '"2"')
UNUSUAL_ZONES = (
    *('"far"', '"immediate"', '"unknown"', '"nEaR"', '"proximitynear"', '"none"', '""', "0", "1"),
    *("3", "4", "02", "2.0", "-2", "true", "null", '"02"', '"\\u006eear"'),
)
TIMES = (
    *('"2026-11-20T12:00:00Z"', '"2026-11-20T13:00:00+0100"', '"2026-11-20T12:00:00.123456+00:00"'),
    *(str(MS), str(MS + 999), "null"),
)
UNUSUAL_TIMES = (
    *('"2026-11-20 12:00:00z"', '"2026-11-20T12:00:00"', '"2026-13-20T12:00:00Z"', '""', '"now"'),
    *('"2026-11-20T11:59:00Z"', '"2026-11-20T12:30:00Z"', '"1969-12-31T23:59:59Z"', f'"{MS}"'),
    *("0", "-1", f"0{MS}", f"{MS}.5", f"{MS}0", f"{MS}000", "1e12", "true", "253402300799001"),
    f'"2026-11-20T12:00:00.{"0" * 40}Z"',
)
TEXTS = ("null", '"android"', '""')
UNUSUAL_TEXTS = ("1", "true", '"\\""', '"é"', '"\\ud800"', '"\x01"', "[]", '"a', "nul", '"\x7f"')
SIGNALS = ("-60", "-60.5", "0", "null")
UNUSUAL_SIGNALS = ("-", "1e3", "1e999", '"-60"', "-060", "60.", ".5", "true", "9" * 400)
ANYTHING = (*TEXTS, *UNUSUAL_TEXTS, *SIGNALS, "true", "false", '{"udid":"b"}', "[1]", "NaN", "tru")

Field = tuple[str, str]


def texts(usual: Iterable[str], unusual: Iterable[str]) -> st.SearchStrategy[str]:
    """One of the values; mostly a usual one, so that few fields of a detection are unusual."""
    usual = tuple(usual)
    return st.sampled_from((*usual * (1 + 60 // len(usual)), *unusual))


def fields(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[list[Field]]:
    """Fields of an object in any order; sometimes one is missing or is there twice."""
    chosen = st.fixed_dictionaries(required, optional=optional).map(lambda each: [*each.items()])
    shuffled = chosen.flatmap(st.permutations)
    twice = st.tuples(shuffled, shuffled).map(lambda two: two[0] + two[1])
    return st.one_of(*[shuffled] * 15, twice)


def object_of(found: list[Field], space: str) -> str:
    return "{" + f",{space}".join(f'"{name}":{space}{text}' for name, text in found) + "}"


SPACES = st.sampled_from(("", " ", "\n\t "))
TEXT, ANY = texts(TEXTS, UNUSUAL_TEXTS), st.sampled_from(ANYTHING)
NAMED = st.sampled_from([f'"{name}"' for name in ("a",) * 40 + DEVICES])
DEVICE = st.builds(
    object_of,
    fields(
        {"udid": NAMED},
        {"name": TEXT, "version": TEXT, "model": TEXT, "token_push": TEXT}
        | {"id_connector": texts(("5", "null"), ("5.0", '"5"', "05", "-5")), "battery": ANY},
    ),
    SPACES,
)
DETECTION = st.builds(
    object_of,
    fields(
        {"uuid": texts(UUIDS, UNUSUAL_UUIDS), "proximity": texts(ZONES, UNUSUAL_ZONES)}
        | {name: texts(NUMBERS, UNUSUAL_NUMBERS) for name in ("major", "minor")}
        | {"device": st.one_of(*[DEVICE] * 60, ANY)},
        {"detected_at": texts(TIMES, UNUSUAL_TIMES), "ip": TEXT}
        | {name: texts(SIGNALS, UNUSUAL_SIGNALS) for name in ("rssi", "tx_power")}
        | {"accuracy": ANY, "ud\\u0069d": ANY, "é": ANY},
    ),
    SPACES,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A detection in which a few bytes were replaced, or left out."""
    value = bytearray(draw(DETECTION).encode())
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(value) - 1))
        value[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=2))
    return bytes(value)


class Mall:
    """Devices that are throttled at one beacon, and a filter that may know it."""

    def __init__(self) -> None:
        self.cache = BeaconCache(100)
        self.remembered: RememberedClaims = ClaimMemory(1000).for_assignment()
        self.filter = compiled("engine.trigger.dwell_filter").DwellFilter(self.cache, MAX_AGE)
        self.put(delay=86_400)
        for udid in DEVICES:
            self.remembered.remember(udid, 1, NOON - 30)
            value = usual(device=json.dumps({"udid": udid})).encode()
            if udid != LONG:
                assert not self.decided(at_noon(value)).granted

    def put(self, **changed: Any) -> None:
        """Cache the beacon as the index has it now."""
        self.cache.drop([f"b:{UUID}:1:1"])
        found = IndexedBeacon(beacon(), [campaign(id=1, **changed)], None)
        self.cache.keep({BeaconKey(UUID, 1, 1): found}, self.cache.version)

    def decided(self, one: ConsumerRecord[bytes, bytes]) -> Decision:
        """The decision without the filter. Raises one of UNDECODABLE."""
        detection = decode_record(one, 2.0)
        found = self.cache.known.get(detection.key)
        return decider(NOON, MAX_AGE, self.remembered)(detection, found)

    def filtered(self, value: bytes | None) -> Decision | None:
        """The decision by the filter alone, if it recognises the record."""
        one = at_noon(value)
        others, standing = self.filter.split([one], self.remembered, NOON)
        assert len(others) + len(standing) == 1
        return standing[0] if standing else None

    def agrees(self, value: bytes) -> bool:
        """Whether the filter recognises the record, and then as decoder and rules decide it."""
        found = self.filtered(value)
        if found is not None:
            assert self.decided(at_noon(value)) is found, value
        return found is not None


def at_noon(value: bytes | None, offset: int = 7) -> ConsumerRecord[bytes, bytes]:
    """A record of that time."""
    return replace(record(value, offset=offset), timestamp=MS)


def usual(**changed: str) -> str:
    plain = {"uuid": UUIDS[0], "major": "1", "minor": "1", "proximity": '"near"'}
    return object_of(list((plain | {"device": '{"udid":"a"}'} | changed).items()), "")


@settings(max_examples=600)
@given(DETECTION)
def test_what_it_recognises_is_decided_so(value: str) -> None:
    Mall().agrees(value.encode())


@settings(max_examples=600)
@given(damaged())
def test_damaged_records_too(value: bytes) -> None:
    Mall().agrees(value)


@pytest.mark.parametrize(
    "changed",
    [
        *({"uuid": text} for text in UUIDS),
        *({name: text} for name in ("major", "minor") for text in NUMBERS),
        *({"proximity": text} for text in ZONES),
        *({"detected_at": text} for text in TIMES),
        *({"ip": text} for text in TEXTS),
        *({name: text} for name in ("rssi", "tx_power") for text in SIGNALS),
        *({"accuracy": text} for text in ("1.5", '"x"', "true", "false", "null")),
        {"device": '{ "udid" : "a" , "name":"ios","version":null,"id_connector":5,"new":1}'},
    ],
    ids=repr,
)
def test_usual_records_are_recognised(changed: dict[str, str]) -> None:
    value = usual(**changed)
    mall = Mall()
    assert mall.agrees(value.encode())
    assert mall.agrees(json.dumps(json.loads(value), indent=2).encode() + b"\n")


def test_all_unusual_values_agree_too() -> None:
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
            mall.agrees(usual(**{name: text}).encode())


@pytest.mark.parametrize("value", [None, b"", b"{}", b"null", b"[]", b"{", usual()[:-1].encode()])
def test_what_is_no_detection_is_left_to_the_decoder(value: bytes | None) -> None:
    assert Mall().filtered(value) is None


@pytest.mark.parametrize("end", [b"x", b"}", b"\0", b",", b"{}"])
def test_nothing_may_follow_a_detection(end: bytes) -> None:
    assert Mall().filtered(usual().encode() + end) is None


def test_an_edited_beacon_is_decided_anew() -> None:
    mall = Mall()
    assert mall.agrees(usual().encode())
    mall.put(delay=1)
    assert mall.filtered(usual().encode()) is None
    assert mall.decided(at_noon(usual().encode())).granted


def test_a_beacon_that_left_the_cache_is_not_kept() -> None:
    mall = Mall()
    assert mall.agrees(usual().encode())
    mall.cache.drop_all()
    assert mall.filtered(usual().encode()) is None


def test_a_forgotten_claim_is_asked_for() -> None:
    mall = Mall()
    mall.remembered.remember("brief", 1, NOON - 30, until=NOON - 1)
    value = usual(device='{"udid":"brief"}').encode()
    mall.remembered.standing["brief"] = mall.remembered.standing["a"]
    assert mall.filtered(value) is None


def test_records_keep_their_order() -> None:
    mall = Mall()
    values = [usual(proximity=zone).encode() for zone in ('"near"', '"far"', '"near"', "0", '"x"')]
    batch = [at_noon(value, offset) for offset, value in enumerate(values)]
    others, standing = mall.filter.split(batch, mall.remembered, NOON)
    assert [each.offset for each in others] == [1, 3, 4]
    assert len(standing) == 2
    assert Zone.NEAR is mall.remembered.standing["a"].zone


def test_undecodable_records_are_never_recognised() -> None:
    """The tests above would raise these; here is one for certain."""
    with pytest.raises(UNDECODABLE):
        Mall().decided(at_noon(usual(ip="1").encode()))
    assert Mall().filtered(usual(ip="1").encode()) is None
