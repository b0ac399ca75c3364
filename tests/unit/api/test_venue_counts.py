"""The counts of a large venue are kept for seconds, for one company, within so many bytes."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

import orjson
import pytest

from api.venue_counts import BeaconCounts, VenueCounts

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Redis:
    """Counts; each count is one higher than the one before."""

    def __init__(self, beacons: int = 3) -> None:
        self.asked: list[int] = []
        self.beacons = beacons
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def count(self, venue_id: int) -> Mapping[int, int]:
        self.asked.append(venue_id)
        number = len(self.asked)
        await self.may_answer.wait()
        return dict.fromkeys(range(1, self.beacons + 1), number)


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


async def ask(kept: VenueCounts, redis: Redis, company: int = 1, venue: int = 7) -> BeaconCounts:
    return await kept.counts(company, venue, redis.count, lambda: NOW)


async def test_they_are_kept_for_seconds() -> None:
    clock, redis = Clock(), Redis()
    kept = VenueCounts(seconds=5.0, few=2, timer=clock)
    first = await ask(kept, redis)
    assert first.at == NOW
    assert orjson.loads(first.json) == [{"id": n, "detections": 1} for n in (1, 2, 3)]
    clock.seconds += 4.9
    assert await ask(kept, redis) == first
    clock.seconds += 0.2
    assert orjson.loads((await ask(kept, redis)).json)[0]["detections"] == 2
    assert redis.asked == [7, 7]


async def test_another_company_gets_its_own() -> None:
    redis, kept = Redis(), VenueCounts(few=2)
    await ask(kept, redis, company=1)
    assert orjson.loads((await ask(kept, redis, company=2)).json)[0]["detections"] == 2


async def test_counts_of_few_beacons_are_not_kept() -> None:
    redis, kept = Redis(beacons=2), VenueCounts(few=2)
    await ask(kept, redis)
    await ask(kept, redis)
    assert redis.asked == [7, 7]


async def test_those_who_ask_at_once_get_one_count() -> None:
    redis, kept = Redis(), VenueCounts(few=2)
    redis.may_answer.clear()
    asking = [asyncio.create_task(ask(kept, redis)) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()  # who leaves takes nothing from the others
    await asyncio.sleep(0)
    redis.may_answer.set()
    found = await asyncio.gather(*asking[1:])
    assert len(set(found)) == 1
    assert redis.asked == [7]


async def test_an_error_is_not_kept() -> None:
    redis, kept = Redis(), VenueCounts(few=2)

    async def fails(_venue_id: int) -> Mapping[int, int]:
        raise ConnectionError("Redis is away")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            await kept.counts(1, 7, fails, lambda: NOW)
    assert orjson.loads((await ask(kept, redis)).json)[0]["detections"] == 1


async def test_the_oldest_make_room() -> None:
    redis = Redis(beacons=100)
    size = len((await ask(VenueCounts(), redis)).json)
    kept = VenueCounts(few=2, most_bytes=3 * size + size // 2)
    redis.asked.clear()
    for venue in (1, 2, 3, 4, 4, 3, 2, 1):
        await ask(kept, redis, venue=venue)
    assert redis.asked == [1, 2, 3, 4, 1]


async def test_a_venue_that_is_too_large_is_not_kept() -> None:
    redis, kept = Redis(beacons=100), VenueCounts(few=2, most_bytes=100)
    for _ in range(2):
        await ask(kept, redis)
    assert redis.asked == [7, 7]
