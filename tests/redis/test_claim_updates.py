"""Claims given back and shortened, on every kind of Redis: by their owner alone, and once."""

import hashlib
import time

import pytest

from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.claims import Claims, ClaimUpdate, ClaimUpdater
from tests.redis.claim_requests import ClaimRequest, take

NOW = float(int(time.time())) + 0.25  # claims know milliseconds, calls whole seconds
DELAY = 3600
PREFIX = "contract:"


def owner(record: int) -> bytes:
    return hashlib.md5(b"%d" % record).digest()  # noqa: S324


def request(record: int, at: float = 0.0, udid: str = "phone", delay: int = DELAY) -> ClaimRequest:
    return ClaimRequest(1, udid, owner(record), NOW + at, delay)


def ending(
    record: int, keep: int, at: float = 0.0, udid: str = "phone", delay: int = DELAY
) -> ClaimUpdate:
    return ClaimUpdate(1, udid, owner(record), float(int(NOW + at)), delay, keep)


@pytest.fixture
def claims(redis: RedisClient, metrics: Metrics) -> Claims:
    return Claims(redis=redis, prefix=PREFIX, retain=600.0, deadline=5.0, metrics=metrics)


@pytest.fixture
def settler(redis: RedisClient) -> ClaimUpdater:
    return ClaimUpdater(redis=redis, prefix=PREFIX, deadline=5.0)


async def granted(claims: Claims, *requests: ClaimRequest) -> list[bool]:
    return [answer is None for answer in await take(claims, requests, NOW)]


async def test_a_claim_given_back_is_free(
    claims: Claims, settler: ClaimUpdater, redis: RedisClient
) -> None:
    assert await granted(claims, request(1), request(2)) == [True, False]
    assert await settler.apply([ending(1, 0)]) == 1
    assert [key async for key in redis.scan_iter(f"{PREFIX}*")] == []
    assert await granted(claims, request(2)) == [True]


async def test_only_its_owner_releases_a_claim(claims: Claims, settler: ClaimUpdater) -> None:
    assert await granted(claims, request(1)) == [True]
    assert await settler.apply([ending(2, 0), ending(3, 60)]) == 0
    assert await granted(claims, request(4, 3000)) == [False]


async def test_a_repeated_release_does_not_release_the_next_owners_claim(
    claims: Claims, settler: ClaimUpdater
) -> None:
    await granted(claims, request(1))
    await settler.apply([ending(1, 0)])
    assert await granted(claims, request(2, 1)) == [True]
    assert await settler.apply([ending(1, 0)]) == 0
    assert await granted(claims, request(3, 2)) == [False]


async def test_a_refusal_keeps_it_for_a_while(claims: Claims, settler: ClaimUpdater) -> None:
    await granted(claims, request(1))
    for _ in range(3):
        await settler.apply([ending(1, 60)])
    assert await granted(claims, request(2, 59.9)) == [False]
    assert await granted(claims, request(3, 60.1)) == [True]


@pytest.mark.parametrize("keep", [0, 5])
async def test_other_grants_of_the_list_stay(
    claims: Claims, settler: ClaimUpdater, keep: int
) -> None:
    batch = [request(number, number * 10, delay=10) for number in range(5)]
    assert await granted(claims, *batch) == [True] * 5
    assert await settler.apply([ending(2, keep, at=20, delay=10)]) == 1
    again = [request(number, number * 10, delay=10) for number in (0, 1, 3, 4)]
    assert await granted(claims, *again) == [True] * 4
    assert await granted(claims, request(9, 41, delay=10)) == [False]


async def test_the_time_to_live_stays(
    claims: Claims, settler: ClaimUpdater, redis: RedisClient
) -> None:
    await granted(claims, request(1))
    (key,) = [key async for key in redis.scan_iter(f"{PREFIX}*")]
    before = await redis.pttl(key)
    await settler.apply([ending(1, 60)])
    assert before - 5000 < await redis.pttl(key) <= before


async def test_a_batch_of_many_devices(claims: Claims, settler: ClaimUpdater) -> None:
    udids = [f"phone {number}" for number in range(2500)]
    await granted(claims, *(request(1, udid=udid) for udid in udids))
    assert await settler.apply([ending(1, 0, udid=udid) for udid in udids[::2]]) == 1250
    answers = await granted(claims, *(request(2, 1, udid=udid) for udid in udids))
    assert answers == [number % 2 == 0 for number in range(2500)]
