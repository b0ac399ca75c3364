"""Reads an index that a test has written, as the engine does."""

import asyncio
from datetime import UTC, datetime

from engine.kafka.detections import BeaconKey, PlaceKey
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.beacon_index import BeaconIndex
from rules.decision import decide
from rules.model import Zone
from tests.rules.records import UUID

KNOWN = BeaconKey(UUID, 1, 2)
UNKNOWN = BeaconKey(UUID, 1, 3)
SENTINEL = BeaconKey(UUID, 1, 9999)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


async def resolve(index: BeaconIndex, *keys: PlaceKey) -> list[IndexedBeacon | None]:
    async with asyncio.timeout(5):
        found = await index.resolve(set(keys), len(keys))
    return [found[key] for key in keys]


async def one(index: BeaconIndex, key: BeaconKey = KNOWN) -> IndexedBeacon:
    (found,) = await resolve(index, key)
    assert found is not None
    return found


def granted(found: IndexedBeacon) -> list[int]:
    decision = decide(found.target, Zone.NEAR, NOON, NOON, 300, {})
    return [each.id for each in decision.granted]
