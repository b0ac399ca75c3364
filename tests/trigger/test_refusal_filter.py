"""The compiled filter refuses only what decoder and rules refuse, with the same decision."""

import os
import random
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from aiokafka import ConsumerRecord

from catalog.index.entries import (
    ApplicationEntry,
    ConnectorEntry,
    application_field,
    geofences_field,
    rules_field,
)
from engine.kafka.detections import (
    UNDECODABLE,
    BeaconKey,
    GeofenceKey,
    PlaceKey,
    TagKey,
    decode_record,
)
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims, claim_keys
from engine.trigger.grants import decide_from_memory
from engine.trigger.locate import places_of
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from engine.trigger.visits import observation
from rules.geofences import Circle, GeofenceGrid
from rules.model import (
    CampaignSnapshot,
    Cap,
    CompanyRules,
    Decision,
    Place,
    QuietHours,
    Reason,
    Zone,
)
from tests.kafka.records import record
from tests.rules.records import UUID, beacon, campaign, geofence, tag
from tests.rules.test_decision_oracle import MAX_AGE
from tests.servers.compiled import compiled
from tests.trigger.written_detections import (
    ANYTHING,
    DEVICE_FIELDS,
    DEVICES,
    FIELDS,
    KEYS,
    LONG,
    MS,
    NOON,
    OTHERS,
    PLACES,
    UNUSUAL_KEYS,
    UUIDS,
    Spellings,
    encoded,
    usual,
)

CONNECTOR = ConnectorEntry(
    id=5, company_id=1, name="c", url="https://c", method="POST", auth="header", parameters="t"
)
EXPONENT = 2.2
# The cache does not know whether the index has the last one.
CIRCLES = (
    Circle(1, 48.8584, 2.2945, 50.0),
    Circle(2, 48.86, 2.2945, 800.0),
    Circle(3, 10.0, 10.0, 300.0),
    Circle(4, -10.0, 180.0, 300.0),
    Circle(5, 48.87, 2.2945, 100.0),
)


class Mall:
    """Places of all kinds, devices with claims of all kinds, and a filter that may know them."""

    def __init__(self) -> None:
        self.cache = PlaceCache(100)
        self.remembered: RememberedClaims = ClaimMemory(1000).for_assignment()
        module = compiled("engine.trigger.refusal_filter")
        self.filter = module.RefusalFilter(self.cache, MAX_AGE, EXPONENT)
        daily, hourly = campaign(id=1, delay=86_400), campaign(id=2, delay=60)
        closed = campaign(id=4, end_minute=1)
        self.put(1, daily, hourly)
        self.put(2, daily, active=False)
        self.put(3)
        self.put(4, closed, reach=Zone.FAR)
        call = campaign(id=3, format="connector", content=None, delay=60)
        self.put(5, call, reach=Zone.FAR)
        self.put(6, daily, campaign(id=5, delay=0), reach=Zone.IMMEDIATE)
        self.cache.keep({BeaconKey(UUID, 1, 7): None}, self.cache.version)
        self.put(8, daily, hourly, rules=CompanyRules(company_id=1, tracks_visits=True))
        self._put(GeofenceKey(1), geofence(), daily)
        self._put(GeofenceKey(2), geofence(id=2), daily, hourly)
        self._put(GeofenceKey(3), geofence(id=3), daily, closed)
        self._put(GeofenceKey(4), geofence(id=4, active=False), daily)
        self._put(TagKey(1, "nfc", "a tag"), tag(kind="nfc"), daily, hourly)
        self._put(TagKey(1, "qrcode", "a tag"), tag(), closed)
        self.cache.keep(
            {TagKey(1, "nfc", "unknown"): None, GeofenceKey(6): None}, self.cache.version
        )
        applications = {
            "ours": ApplicationEntry(id=1, company_id=1, active=True),
            "ending": ApplicationEntry(id=4, company_id=1, active=True, expires_at=NOON),
            "off": ApplicationEntry(id=2, company_id=1, active=False),
            "visits": ApplicationEntry(id=5, company_id=3, active=True),
            "new": ApplicationEntry(id=6, company_id=4, active=True),
            "empty": ApplicationEntry(id=3, company_id=2, active=True),
        }
        self.companies: dict[str, Any] = {
            application_field(key): each for key, each in applications.items()
        }
        grids = {geofences_field(company): GeofenceGrid(CIRCLES) for company in (1, 3, 4)}
        rules = {1: None, 3: CompanyRules(company_id=3, tracks_visits=True)}
        self.companies |= grids | {rules_field(company): each for company, each in rules.items()}
        self.cache.keep(self.companies, self.cache.version)
        for udid in DEVICES:
            self.remembered.remember(udid, claim_keys([daily]), NOON - 70, NOON)
        self.remembered.remember("sent", claim_keys([hourly, call]), NOON - 30, NOON)
        read = {1: NOON - 100, 2: NOON - 40, 3: NOON - 10}
        self.remembered.remember("read", [], NOON, NOON, read=read)
        self.remembered.by_device.pop("new")
        self.remembered.by_device.pop(LONG)
        for minor in (*range(1, 7), 8):  # so that each beacon has a phase
            self.decisions(at_noon(usual(minor=str(minor), device='{"udid":"new"}').encode()))
        for known in self.cache.known.values():
            if isinstance(known, IndexedPlace):
                known.target.phase_at(NOON)

    def put(
        self,
        minor: int,
        *campaigns: CampaignSnapshot,
        rules: CompanyRules | None = None,
        **fields: Any,
    ) -> None:
        """Cache a beacon as the index has it now."""
        self.cache.drop([f"b:{UUID}:1:{minor}"])
        found = IndexedPlace(beacon(minor=minor, **fields), campaigns, CONNECTOR, rules=rules)
        self.cache.keep({BeaconKey(UUID, 1, minor): found}, self.cache.version)

    def _put(self, key: PlaceKey, place: Place, *campaigns: CampaignSnapshot) -> None:
        found = IndexedPlace(place, campaigns, CONNECTOR)
        self.cache.keep({key: found}, self.cache.version)

    def decisions(self, one: ConsumerRecord[bytes, bytes]) -> list[Decision] | None:
        """The decisions without the filter; None if the index must be asked, or for the report that
        a device left. Raises one of UNDECODABLE."""
        detection = decode_record(one, EXPONENT)
        message, found = detection.message, [detection]
        if message.geofence is not None and message.geofence.transition == "exit":
            return None
        if detection.key is None:
            application = self.companies.get(application_field(message.api_key or ""))
            grid = application and self.companies.get(geofences_field(application.company_id))
            places = places_of(detection, application, grid)
            if isinstance(places, Decision):
                return [places]
            found = list(places)
        if any(each.key not in self.cache.known for each in found):
            return None
        known, remembered = self.cache.known, self.remembered
        return [
            decide_from_memory(each, known[each.key], remembered, NOON, MAX_AGE) for each in found
        ]

    def refused(self, value: bytes | None) -> list[Decision]:
        """The decisions by the filter alone, if it refuses the record."""
        one = at_noon(value)
        others, refused, seen = self.filter.split([one], self.remembered, NOON)
        assert others == ([] if refused else [one])
        found: list[Decision] = refused
        self.seen = seen
        return found

    def visited(self, one: ConsumerRecord[bytes, bytes]) -> list[Any]:
        """What visits need of the record, as the decoder reads it."""
        detection = decode_record(one, EXPONENT)
        place = self.cache.known.get(detection.key)
        if place is None or not place.visited:
            return []
        seen = observation(detection, place, one.timestamp / 1000, MAX_AGE, EXPONENT)
        return [] if seen is None else [(one, place, detection.message.device.udid, seen)]

    def agrees(self, value: bytes) -> bool:
        """Whether the filter refuses the record, and then as decoder and rules decide it."""
        found = self.refused(value)
        if found:
            expected = self.decisions(at_noon(value))
            assert expected is not None, value
            assert list(map(id, expected)) == list(map(id, found)), value
            assert self.seen == self.visited(at_noon(value)), value
        return bool(found)


def at_noon(value: bytes | None, offset: int = 7) -> ConsumerRecord[bytes, bytes]:
    """A record of that time."""
    return replace(record(value, offset=offset), timestamp=MS)


QUIET = CompanyRules(company_id=1, quiet_hours=QuietHours(660, 780), time_zone="UTC")


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
            mall.decisions(at_noon(value))
            assert mall.agrees(value) == is_refused, (rules, campaigns)
    mall.put(1, daily, free, rules=capped)
    (decision,) = mall.decisions(at_noon(value)) or []
    assert dict(decision.by_campaign) == {1: Reason.THROTTLED, 9: Reason.CAPPED}


def test_a_beacon_is_decided_as_the_cache_has_it() -> None:
    """Edited, new, or dropped."""
    mall, unknown = Mall(), usual(minor="7").encode()
    spellings = [usual(uuid=uuid).encode() for uuid in UUIDS]
    assert all(map(mall.agrees, (*spellings, unknown)))
    mall.put(1, campaign(id=1, delay=1))
    mall.put(7, campaign(id=9))
    assert not any(map(mall.refused, (*spellings, unknown)))
    (decision,) = mall.decisions(at_noon(spellings[0])) or []
    assert decision.granted
    mall.put(1, campaign(id=1, delay=86_400))
    mall.decisions(at_noon(spellings[0]))
    assert mall.agrees(spellings[0])
    mall.cache.drop_all()
    assert not mall.refused(spellings[0])


def test_a_claim_that_has_expired_refuses_nothing() -> None:
    mall = Mall()
    mall.put(1, campaign(id=1, delay=86_400))
    value = usual(device='{"udid":"brief"}').encode()
    mall.remembered.remember(
        "brief", claim_keys([campaign(id=1, delay=86_400)]), NOON - 30, NOON, briefly=True
    )
    mall.decisions(at_noon(value))
    assert mall.agrees(value)
    later = at_noon(value)
    split = mall.filter.split([later], mall.remembered, NOON + 5)
    assert split == ([later], [], [])


def test_a_new_phase_is_left_to_the_rules() -> None:
    mall = Mall()
    mall.put(1, campaign(id=1, delay=86_400, start_minute=12 * 60, end_minute=13 * 60))
    mall.decisions(at_noon(usual(device='{"udid":"new"}').encode()))
    assert mall.agrees(usual().encode())
    assert not mall.refused(usual(detected_at=str(MS - 1)).encode())
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
_OTHER = {name: FIELDS[name] for name in ("rssi", "tx_power", "detected_at", "ip", "accuracy")}
_OTHER["api_key"] = KEYS, UNUSUAL_KEYS
_KINDS = {"beacon": FIELDS} | {name: _OTHER | {name: texts} for name, texts in OTHERS.items()}


def written(dice: random.Random, of: dict[str, Spellings], oddity: str) -> str:
    """An object with these fields, in any order."""
    fields = [(name, dice.choice(texts)) for name, (texts, _) in of.items()]
    dice.shuffle(fields)
    place = dice.randrange(len(fields))
    name, _ = fields[place]
    if oddity == "absent":
        del fields[place]
    elif oddity == "value":
        fields[place] = name, dice.choice(of[name][1])
    elif oddity == "twice":
        again = dice.choice(of[name][dice.randrange(2)])
        fields.insert(dice.randrange(len(fields) + 1), (name, again))
    elif oddity == "place":
        fields.insert(place, dice.choice(PLACES))
    space = dice.choice(("", " ", "\n"))
    return "{" + f",{space}".join(f'"{name}":{space}{text}' for name, text in fields) + "}"


def fuzzed(dice: random.Random, kind: str) -> bytes:
    """A record with a place of this kind, which has at most one oddity."""
    of_object = "value", "absent", "twice", "place"
    oddity = dice.choice((*["none"] * 8, *["value"] * 3, *of_object, "byte", "device"))
    of_device = dice.choice(of_object) if oddity == "device" else "none"
    device = written(dice, DEVICE_FIELDS, of_device)
    fields = _KINDS[kind] | {"device": ((device,), ANYTHING)}
    value = bytearray(encoded(written(dice, fields, oddity)))
    if oddity == "byte":
        at, byte = dice.randrange(len(value)), dice.randrange(256)
        value[at : at + dice.randrange(2)] = bytes([byte] * dice.randrange(2))
    return bytes(value)


@pytest.mark.timeout(FUZZ_SECONDS + 60)
def test_mutated_records_are_refused_only_as_the_rules_refuse_them() -> None:
    """Ten minutes with PROXIMITY_TEST_FUZZ_SECONDS=600."""
    mall, seed = Mall(), random.randrange(2**32)
    dice, tried, refused = random.Random(seed), 0, dict.fromkeys(_KINDS, 0)
    until = time.monotonic() + FUZZ_SECONDS
    while time.monotonic() < until or tried < 500:
        tried += 1
        for kind in _KINDS:
            value = fuzzed(dice, kind)
            try:
                refused[kind] += mall.agrees(value)
            except UNDECODABLE:
                pytest.fail(f"refused, and not decodable: {value!r} (seed {seed})")
    assert min(refused.values()) >= tried / 3, f"{refused} of {tried} each"


def test_a_position_outside_may_end_a_visit() -> None:
    where = '{"position":{"latitude":0,"longitude":0},"device":{"udid":"sent"},"api_key":'
    mall = Mall()
    assert mall.agrees(f'{where}"ours"}}'.encode())
    for unsure in ("visits", "new"):  # nobody has read the rules of the new one's company
        assert not mall.refused(f'{where}"{unsure}"}}'.encode())
