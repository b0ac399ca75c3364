"""The compiled filter refuses only what decoder and rules refuse, with the same decision."""

import json
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.index.entries import ConnectorEntry
from engine.kafka.decoding import UNDECODABLE
from engine.kafka.detections import BeaconKey, decode_record
from engine.trigger.beacon_cache import BeaconCache, IndexedBeacon
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from engine.trigger.grants import decider
from rules.model import CampaignSnapshot, Reason, Zone
from rules.outcome import Decision
from tests.property.test_decision import MAX_AGE
from tests.servers.compiled import compiled
from tests.unit.engine.records import record
from tests.unit.rules.records import UUID, beacon, campaign, epoch

CONNECTOR = ConnectorEntry(
    id=5, company_id=1, name="c", url="https://c", method="POST", auth="header", parameters="t"
)
EXPONENT = 2.2
NOON = epoch("2026-11-20T12:00:00Z")
MS = int(NOON * 1000)
MAX_AGE_MS = int(MAX_AGE * 1000)
LONG = "x" * 256
DEVICES = ("sent", "some", "read", "new", "old", LONG, "\x7f", "é")

# Each value of a field as JSON. The first ones are those that the filter has to recognise.
UUIDS = (f'"{UUID}"', f'"{UUID.upper()}"', f'"{UUID.replace("-", "")}"')
UNUSUAL_UUIDS = (f'" {UUID}"', f'"{UUID}0"', f'"{UUID[1:]}"', '"\\u0065"', "1", "null", '""')
NUMBERS = ("1", '"1"', '"01"', '"00001"')
MINORS = (*NUMBERS, *"234567")
UNUSUAL_NUMBERS = (
    *("01", "1.0", "-1", "65537", "65536", "1e0", "true", "null", "+1", "1_0", "000001"),
    *('"1_0"', '" 1"', '"1 "', '"000001"', '"65537"', '"-1"', '"+1"', '""', '"one"', '"１"'),
)
ZONES = ('"near"', '"ProximityNear"', '"NEAR"', "2", '"2"', '"far"', '"immediate"', "0", "1", "3")
UNUSUAL_ZONES = (
    *('"nEaR"', '"proximitynear"', '"none"', '""', "4", "02", "2.0", "-2", "true", '"02"'),
    '"\\u006eear"',
)
TIMES = (
    *('"2026-11-20T12:00:00Z"', '"2026-11-20T13:00:00+0100"', '"2026-11-20T12:00:00.123456+00:00"'),
    *(str(MS), str(MS + 999), str(MS - 90_000), "null", '"2026-11-20T11:40:00Z"', str(MS + 10**7)),
    *(str(MS + sign * (MAX_AGE_MS + more)) for sign in (-1, 1) for more in (-1, 0, 1)),
    # When claims begin and when their delays end.
    *(str(MS + seconds * 1000) for seconds in (-40, -30, -10, 20, 30, 50)),
)
UNUSUAL_TIMES = (
    *('"2026-11-20 12:00:00z"', '"2026-11-20T12:00:00"', '"2026-13-20T12:00:00Z"', '""', '"now"'),
    *('"1969-12-31T23:59:59Z"', f'"{MS}"'),
    *("0", "-1", f"0{MS}", f"{MS}.5", f"{MS}0", f"{MS}000", "1e12", "true", "253402300799001"),
    f'"2026-11-20T12:00:00.{"0" * 40}Z"',
)
TEXTS = ("null", '"android"', '""')
UNUSUAL_TEXTS = (
    *("1", "true", '"\\""', '"é"', '"\\ud800"', '"\x1f"', '"\x7f"', "[]", '"a', "nul"),
    '"\udcff"',  # encoded as a byte that is not UTF-8
)
SIGNALS = (
    "-60",
    "-60.5",
    "-59.0",
    "-72.2",
    "-72.5",
    "-52.9",
    "-53",
    "-1",
    "-0.0",
    "0",
    "7",
    "-99",
)
UNUSUAL_SIGNALS = (
    *("-", "1e3", "-1e999", '"-60"', "-060", "60.", ".5", "true"),
    *("-" + "9" * 400, f"-60.{'0' * 400}"),
)
ANYTHING = (*TEXTS, *UNUSUAL_TEXTS, *SIGNALS, "true", "false", '{"udid":"b"}', "[1]", "NaN", "tru")

UNUSUAL_NAMES = ("é", "ud\\u0069d", "ip6", "majority", "rssi_", "proximity2", "devices", "")

Field = tuple[str, str]


def texts(usual: Iterable[str], unusual: Iterable[str]) -> st.SearchStrategy[str]:
    """One of the values; mostly a usual one, so that few fields of a detection are unusual."""
    usual = tuple(usual)
    return st.sampled_from((*usual * (1 + 60 // len(usual)), *unusual))


def fields(
    required: dict[str, Any], optional: dict[str, Any], *, twice: bool
) -> st.SearchStrategy[list[Field]]:
    """Fields of an object in any order, sometimes all of them twice."""
    chosen = st.fixed_dictionaries(required, optional=optional).map(lambda each: [*each.items()])
    shuffled = chosen.flatmap(st.permutations)
    both = st.tuples(shuffled, shuffled).map(lambda two: two[0] + two[1])
    return st.one_of(*[shuffled] * 15, both) if twice else shuffled


def object_of(found: list[Field], space: str) -> str:
    return "{" + f",{space}".join(f'"{name}":{space}{text}' for name, text in found) + "}"


SPACES = st.sampled_from(("", " ", "\n\t "))
USUAL_NAMES = [f'"{name}"' for name in DEVICES[:5]]


def detections(unusual: bool) -> st.SearchStrategy[str]:
    """JSON of detections; with `unusual` also of things that are none."""

    def some(usual: Iterable[str], others: Iterable[str]) -> st.SearchStrategy[str]:
        return texts(usual, others if unusual else ())

    def made(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[str]:
        return st.builds(object_of, fields(required, optional, twice=unusual), SPACES)

    text, signal = some(TEXTS, UNUSUAL_TEXTS), some(SIGNALS, UNUSUAL_SIGNALS)
    anything = some(("1.5", '"x"', "true", "false", "null"), ANYTHING)
    device = made(
        {"udid": some(USUAL_NAMES, [f'"{name}"' for name in DEVICES[5:]])},
        {"name": text, "version": text, "model": text, "token_push": text, "battery": anything}
        | {"id_connector": some(("5", "null"), ("5.0", '"5"', "05", "-5"))},
    )
    where = {
        "uuid": some(UUIDS, UNUSUAL_UUIDS),
        "major": some(NUMBERS, UNUSUAL_NUMBERS),
        "minor": some(MINORS, UNUSUAL_NUMBERS),
        "device": st.one_of(*[device] * 60, anything) if unusual else device,
    }
    zone = {"proximity": some((*ZONES, "null"), UNUSUAL_ZONES)}
    more = {"detected_at": some(TIMES, UNUSUAL_TIMES), "ip": text, "accuracy": anything}
    more |= dict.fromkeys(UNUSUAL_NAMES, anything) if unusual else {}
    power = {"tx_power": st.one_of(signal, st.just("null"))}
    return made(where | {"rssi": signal}, zone | power | more) | made(
        where | {"proximity": some(ZONES, UNUSUAL_ZONES)}, {"rssi": signal} | power | more
    )


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A detection in which a few bytes were replaced, or left out."""
    value = bytearray(encoded(draw(detections(unusual=True))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(value) - 1))
        value[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=2))
    return bytes(value)


class Mall:
    """Beacons of all kinds, devices with claims of all kinds, and a filter that may know them."""

    def __init__(self) -> None:
        self.cache = BeaconCache(100)
        self.remembered: RememberedClaims = ClaimMemory(1000).for_assignment()
        module = compiled("engine.trigger.refusal_filter")
        self.filter = module.RefusalFilter(self.cache, MAX_AGE, EXPONENT)
        daily, hourly = campaign(id=1, delay=86_400), campaign(id=2, delay=60)
        closed = campaign(id=4, end_minute=1)
        self.put(1, daily, hourly)
        self.put(2, daily, active=False)
        self.put(3)
        self.put(4, closed, reach=Zone.FAR)
        self.put(5, campaign(id=3, format="connector", content=None, delay=60), reach=Zone.FAR)
        self.put(6, daily, campaign(id=5, delay=0), reach=Zone.IMMEDIATE)
        self.cache.keep({BeaconKey(UUID, 1, 7): None}, self.cache.version)
        for udid in DEVICES:
            self.remembered.remember(udid, 1, NOON - 70)
        for number in (2, 3):
            self.remembered.remember("sent", number, NOON - 30)
        self.remembered.read("read", {1: NOON - 100, 2: NOON - 40, 3: NOON - 10})
        self.remembered.young.pop("new")
        self.remembered.young.pop(LONG)
        self.remembered._old["old"] = self.remembered.young.pop("old")
        for minor in range(1, 7):  # so that each beacon has a phase
            self.decided(at_noon(usual(minor=str(minor), device='{"udid":"new"}').encode()))

    def put(self, minor: int, *campaigns: CampaignSnapshot, **fields: Any) -> None:
        """Cache a beacon as the index has it now."""
        self.cache.drop([f"b:{UUID}:1:{minor}"])
        found = IndexedBeacon(beacon(minor=minor, **fields), campaigns, CONNECTOR)
        self.cache.keep({BeaconKey(UUID, 1, minor): found}, self.cache.version)

    def decided(self, one: ConsumerRecord[bytes, bytes]) -> Decision | None:
        """The decision without the filter; None if the index must be asked. Raises one of
        UNDECODABLE."""
        detection = decode_record(one, EXPONENT)
        if detection.key not in self.cache.known:
            return None
        found = self.cache.known[detection.key]
        return decider(NOON, MAX_AGE, self.remembered)(detection, found)

    def filtered(self, value: bytes | None) -> Decision | None:
        """The decision by the filter alone, if it refuses the record."""
        one = at_noon(value)
        others, refused = self.filter.split([one], self.remembered, NOON)
        assert len(others) + len(refused) == 1
        return refused[0] if refused else None

    def agrees(self, value: bytes) -> bool:
        """Whether the filter refuses the record, and then as decoder and rules decide it."""
        found = self.filtered(value)
        if found is not None:
            assert self.decided(at_noon(value)) is found, value
        return found is not None


@cache
def shared_mall() -> Mall:
    """One for many examples, which change nothing but the age of claims."""
    return Mall()


def encoded(value: str) -> bytes:
    """The bytes of a JSON text, with those that are not UTF-8."""
    return value.encode(errors="surrogateescape")


def at_noon(value: bytes | None, offset: int = 7) -> ConsumerRecord[bytes, bytes]:
    """A record of that time."""
    return replace(record(value, offset=offset), timestamp=MS)


def usual(**changed: str) -> str:
    """A detection of a device that has the campaigns of the first beacon."""
    plain = {"uuid": UUIDS[0], "major": "1", "minor": "1", "proximity": '"near"'}
    return object_of(list((plain | {"device": '{"udid":"sent"}'} | changed).items()), "")


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
