"""Beacons, devices and claims, with the compiled filter and with decoder and rules."""

from dataclasses import replace
from functools import cache
from typing import Any

from aiokafka import ConsumerRecord

from catalog.index.entries import ConnectorEntry
from engine.kafka.detections import BeaconKey, decode_record
from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from engine.trigger.grants import decide_from_memory
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from rules.model import CampaignSnapshot, Decision, Zone
from tests.kafka.records import record
from tests.rules.records import UUID, beacon, campaign
from tests.rules.test_decision_oracle import MAX_AGE
from tests.servers.compiled import compiled
from tests.trigger.written_detections import DEVICES, LONG, MS, NOON, usual

CONNECTOR = ConnectorEntry(
    id=5, company_id=1, name="c", url="https://c", method="POST", auth="header", parameters="t"
)
EXPONENT = 2.2


class Mall:
    """Beacons of all kinds, devices with claims of all kinds, and a filter that may know them."""

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
        for udid in DEVICES:
            self.remembered.remember(udid, [(daily, NOON - 70)], NOON)
        self.remembered.remember("sent", [(hourly, NOON - 30), (call, NOON - 30)], NOON)
        read = {1: NOON - 100, 2: NOON - 40, 3: NOON - 10}
        self.remembered.remember("read", [], NOON, read=read)
        self.remembered.young.pop("new")
        self.remembered.young.pop(LONG)
        self.remembered._old["old"] = self.remembered.young.pop("old")
        for minor in range(1, 7):  # so that each beacon has a phase
            self.decided(at_noon(usual(minor=str(minor), device='{"udid":"new"}').encode()))

    def put(self, minor: int, *campaigns: CampaignSnapshot, **fields: Any) -> None:
        """Cache a beacon as the index has it now."""
        self.cache.drop([f"b:{UUID}:1:{minor}"])
        found = IndexedPlace(beacon(minor=minor, **fields), campaigns, CONNECTOR)
        self.cache.keep({BeaconKey(UUID, 1, minor): found}, self.cache.version)

    def decided(self, one: ConsumerRecord[bytes, bytes]) -> Decision | None:
        """The decision without the filter; None if the index must be asked. Raises one of
        UNDECODABLE."""
        detection = decode_record(one, EXPONENT)
        if detection.key not in self.cache.known:
            return None
        found = self.cache.known[detection.key]
        return decide_from_memory(detection, found, self.remembered, NOON, MAX_AGE)

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


def at_noon(value: bytes | None, offset: int = 7) -> ConsumerRecord[bytes, bytes]:
    """A record of that time."""
    return replace(record(value, offset=offset), timestamp=MS)
