"""Reads an index that a test has written, as the engine does."""

import asyncio
from datetime import UTC, datetime

from engine.kafka.detections import BeaconKey, PlaceKey
from engine.trigger.place_cache import IndexedPlace
from engine.trigger.place_index import PlaceIndex
from rules.decision import decide
from rules.model import Zone
from tests.rules.records import UUID

KNOWN = BeaconKey(UUID, 1, 2)
UNKNOWN = BeaconKey(UUID, 1, 3)
SENTINEL = BeaconKey(UUID, 1, 9999)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


async def resolve(index: PlaceIndex, *keys: PlaceKey) -> list[IndexedPlace | None]:
    async with asyncio.timeout(5):
        found = await index.resolve(set(keys), len(keys))
    return [found[key] for key in keys]


async def one(index: PlaceIndex, key: BeaconKey = KNOWN) -> IndexedPlace:
    (found,) = await resolve(index, key)
    assert found is not None
    return found


def granted(found: IndexedPlace) -> list[int]:
    decision = decide(found.target, Zone.NEAR, NOON, NOON, 300, {})
    return [each.id for each in decision.granted]
