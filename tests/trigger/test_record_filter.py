"""The compiled filter decides only what decoder and rules decide in the same way."""

import os
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
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
from engine.redis.claims import pack_caps
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims, claim_keys
from engine.trigger.grants import DecidedDetection, at_place, decide_from_memory
from engine.trigger.locate import places_of
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from engine.trigger.visits import observation
from rules.geofences import Circle, GeofenceGrid
from rules.model import CampaignSnapshot, Cap, CompanyRules, Decision, Place, QuietHours, Zone
from tests.kafka.records import record
from tests.rules.records import UUID, beacon, campaign, geofence, tag
from tests.rules.test_decision_oracle import MAX_AGE
from tests.servers.missing import compiled
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


DAILY, HOURLY = campaign(id=1, delay=86_400), campaign(id=2, delay=60)
CALL = campaign(id=3, format="connector", content=None, delay=60)
CLOSED, FREE = campaign(id=4, end_minute=1), campaign(id=5)
TRACKING = CompanyRules(company_id=1, tracks_visits=True)
# Its phase ends within the times of the records.
IN_THE_MORNING = campaign(id=6, delay=86_400, end_minute=12 * 60)
CAMPAIGNS = DAILY, HOURLY, CALL, CLOSED, FREE, IN_THE_MORNING
QUIET = CompanyRules(company_id=1, quiet_hours=QuietHours(660, 780), time_zone="UTC")
RULES = (
    *(None, None, QUIET, msgspec.structs.replace(QUIET, time_zone="Asia/Tokyo")),
    CompanyRules(company_id=1, caps=(Cap(1, 60),)),
)


class Mall:
    """Places of all kinds, devices with claims of all kinds, and a filter that may know them."""

    def __init__(self) -> None:
        self.cache = PlaceCache(100)
        self.remembered: RememberedClaims = ClaimMemory(1000).for_assignment()
        self.partition = SimpleNamespace(remembered=self.remembered)
        module = compiled("engine.trigger.record_filter")
        self.filter = module.RecordFilter(self.cache, MAX_AGE, EXPONENT)
        self.now = NOON
        self.put(1, DAILY, HOURLY)
        self.put(2, DAILY, active=False)
        self.put(3)
        self.put(4, CLOSED, reach=Zone.FAR)
        self.put(5, CALL, reach=Zone.FAR)
        self.put(6, DAILY, FREE, reach=Zone.IMMEDIATE)
        self.cache.keep({BeaconKey(UUID, 1, 7): None}, self.cache.version)
        self.put(8, DAILY, HOURLY, rules=TRACKING)
        self._put(GeofenceKey(1), geofence(), DAILY)
        self._put(GeofenceKey(2), geofence(id=2), DAILY, HOURLY)
        self._put(GeofenceKey(3), geofence(id=3), DAILY, CLOSED)
        self._put(GeofenceKey(4), geofence(id=4, active=False), DAILY)
        self._put(TagKey(1, "nfc", "a tag"), tag(kind="nfc"), DAILY, HOURLY)
        self._put(TagKey(1, "qrcode", "a tag"), tag(), CLOSED)
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
            self.remembered.remember(udid, {1: NOON - 70}, NOON)
        self.remembered.remember("sent", {2: NOON - 30, -3: NOON - 30}, NOON)
        read = {1: NOON - 100, 2: NOON - 40, 3: NOON - 10}
        self.remembered.remember("read", read, NOON, are_all=True)
        self.remembered.by_device.pop("new")
        self.remembered.by_device.pop(LONG)

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

    def change(self, dice: random.Random) -> None:
        """The first beacon is edited, a new one comes or goes, claims are taken, time passes."""
        self.put(1, *dice.sample(CAMPAIGNS, dice.randrange(4)), rules=dice.choice(RULES))
        self.cache.drop([f"b:{UUID}:1:7"])
        if dice.random() < 0.8:
            known = dice.choice((None, IndexedPlace(beacon(minor=7), [DAILY], CONNECTOR)))
            self.cache.keep({BeaconKey(UUID, 1, 7): known}, self.cache.version)
        self.now = NOON + dice.choice((0, 0, 5, 60))
        taken = dict.fromkeys(claim_keys(dice.sample(CAMPAIGNS, 2)), NOON - 30)
        self.remembered.remember("new", taken, self.now, briefly=True)
        capped = (MS - 5000, MS + dice.choice((0, 5000)), 0)
        caps = pack_caps(1, (Cap(1, 60),))
        self.remembered.remember_capped(dice.choice(DEVICES), caps, capped, self.now)

    def decided(self, one: ConsumerRecord[bytes, bytes]) -> list[DecidedDetection] | None:
        """What is decided without the filter; None if the index must be asked, or for the report
        that a device left. Raises one of UNDECODABLE."""
        detection = decode_record(one, EXPONENT)
        message, found = detection.message, [detection]
        if message.geofence is not None and message.geofence.transition == "exit":
            return None
        if detection.key is None:
            application = self.companies.get(application_field(message.api_key or ""))
            grid = application and self.companies.get(geofences_field(application.company_id))
            places = places_of(detection, application, grid)
            if isinstance(places, Decision):
                nowhere = at_place(detection, None)
                nowhere.decision = places
                return [nowhere]
            found = list(places)
        if any(each.key not in self.cache.known for each in found):
            return None
        decided = [at_place(each, self.cache.known[each.key]) for each in found]
        for each in decided:
            each.decision = decide_from_memory(each, self.remembered, self.now, MAX_AGE)
        return decided

    def split(self, *records: ConsumerRecord[bytes, bytes]) -> Any:
        """What the filter says of records."""
        return self.filter.split(list(records), self.partition, 3, self.now)

    def visited(self, one: ConsumerRecord[bytes, bytes]) -> list[Any]:
        """What visits need of the record, as the decoder reads it."""
        detection = decode_record(one, EXPONENT)
        place = self.cache.known.get(detection.key)
        if place is None or not place.visited:
            return []
        seen = observation(detection, place, one.timestamp / 1000, MAX_AGE, EXPONENT)
        visitor = place.company_reference.id, detection.message.device.udid
        return [] if seen is None else [(seen, visitor, place.visited, one)]

    def outcome(self, value: bytes) -> str:
        """Whether the filter refuses the record or grants it, and then as decoder and rules do.

        What it leaves is decided by them, and from then on it knows that phase of the place.
        """
        one = at_noon(value)
        others, (refused, granted, seen) = self.split(one)
        if others:
            assert (others, refused, granted, seen) == ([one], [], [], []), value
            with suppress(*UNDECODABLE):
                self.decided(one)
            return "left"
        expected = self.decided(one)
        assert expected is not None, value
        decisions = [each.decision for each in expected]
        if granted:
            for each in expected:
                each.partition, each.version = self.partition, 3  # type: ignore[assignment]
            assert granted == expected, value
            refused = [each.decision for each in granted]
        assert list(map(id, decisions)) == list(map(id, refused)), value
        assert seen == self.visited(one), value
        return "granted" if granted else "refused"


def at_noon(value: bytes | None, offset: int = 7) -> ConsumerRecord[bytes, bytes]:
    """A record of that time."""
    return replace(record(value, offset=offset), timestamp=MS)


def test_records_keep_their_order() -> None:
    mall = Mall()
    values = [usual(device=f'{{"udid":"{udid}"}}') for udid in ("sent", "new", "sent", "some")]
    batch = [at_noon(value.encode(), offset) for offset, value in enumerate([*values, "{"])]
    mall.decided(batch[1])  # so that the beacon's phase is known
    others, (refused, granted, _) = mall.split(*batch)
    assert [each.offset for each in others] == [3, 4]  # of two campaigns one fires; no JSON
    assert [each.record.offset for each in granted] == [1]
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
    space = dice.choice(("", "", "", " ", " ", " ", "  ", "\n"))
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
def test_mutated_records_are_decided_only_as_the_rules_decide_them() -> None:
    """Ten minutes with PROXIMITY_TEST_FUZZ_SECONDS=600."""
    mall, seed = Mall(), random.randrange(2**32)
    dice, tried = random.Random(seed), 0
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
    until = time.monotonic() + FUZZ_SECONDS
    while time.monotonic() < until or tried < 500:
        tried += 1
        if tried % 50 == 0:
            mall.change(dice)
        for kind in _KINDS:
            value = fuzzed(dice, kind)
            try:
                outcomes[kind][mall.outcome(value)] += 1
            except UNDECODABLE:
                pytest.fail(f"decided, and not decodable: {value!r} (seed {seed})")
    for kind, counts in outcomes.items():
        assert counts["refused"] >= tried / 4, outcomes
        assert counts["granted"] >= (0 if kind == "position" else tried / 100), outcomes


def test_a_position_outside_may_end_a_visit() -> None:
    where = '{"position":{"latitude":0,"longitude":0},"device":{"udid":"sent"},"api_key":'
    mall = Mall()
    assert mall.outcome(f'{where}"ours"}}'.encode()) == "refused"
    for unsure in ("visits", "new"):  # nobody has read the rules of the new one's company
        assert mall.outcome(f'{where}"{unsure}"}}'.encode()) == "left"
    for rules, outcome in ((None, "refused"), (TRACKING, "left")):
        found = IndexedPlace(geofence(id=4, active=False), [DAILY], CONNECTOR, rules=rules)
        mall.cache.keep({GeofenceKey(4): found}, mall.cache.version)
        inside = where.replace('0,"longitude":0', '-10,"longitude":180')
        assert mall.outcome(f'{inside}"ours"}}'.encode()) == outcome
