"""Places, devices and claims, with the compiled filter and with decoder and rules."""

from dataclasses import replace
from functools import cache
from typing import Any

from aiokafka import ConsumerRecord

from catalog.index.entries import (
    ApplicationEntry,
    ConnectorEntry,
    application_field,
    geofences_field,
    rules_field,
)
from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey, TagKey, decode_record
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from engine.trigger.grants import decide_from_memory
from engine.trigger.locate import places_of
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from engine.trigger.visits import observation
from rules.geofences import Circle, GeofenceGrid
from rules.model import CampaignSnapshot, CompanyRules, Decision, Place, Zone
from tests.kafka.records import record
from tests.rules.records import UUID, beacon, campaign, geofence, tag
from tests.rules.test_decision_oracle import MAX_AGE
from tests.servers.compiled import compiled
from tests.trigger.written_detections import DEVICES, LONG, MS, NOON, usual

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
            self.remembered.remember(udid, [daily], NOON - 70, NOON)
        self.remembered.remember("sent", [hourly, call], NOON - 30, NOON)
        read = {1: NOON - 100, 2: NOON - 40, 3: NOON - 10}
        self.remembered.remember("read", [], NOON, NOON, read=read)
        self.remembered.young.pop("new")
        self.remembered.young.pop(LONG)
        self.remembered._old["old"] = self.remembered.young.pop("old")
        for minor in (*range(1, 7), 8):  # so that each beacon has a phase
            self.decided(at_noon(usual(minor=str(minor), device='{"udid":"new"}').encode()))
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

    def decided(self, one: ConsumerRecord[bytes, bytes]) -> Decision | None:
        """The decision without the filter about the first place; None and errors as `decisions`."""
        found = self.decisions(one)
        return None if found is None else found[0]

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

    def filtered(self, value: bytes | None) -> Decision | None:
        """The first of them."""
        found = self.refused(value)
        return found[0] if found else None

    def agrees(self, value: bytes) -> bool:
        """Whether the filter refuses the record, and then as decoder and rules decide it."""
        found = self.refused(value)
        if found:
            expected = self.decisions(at_noon(value))
            assert expected is not None, value
            assert list(map(id, expected)) == list(map(id, found)), value
            assert self.seen == self.visited(at_noon(value)), value
        return bool(found)


@cache
def shared_mall() -> Mall:
    """One for many examples, which change nothing but the age of claims."""
    return Mall()


def at_noon(value: bytes | None, offset: int = 7) -> ConsumerRecord[bytes, bytes]:
    """A record of that time."""
    return replace(record(value, offset=offset), timestamp=MS)
