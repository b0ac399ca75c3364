"""Requests for claims, and the answers to them, as both suites of claims use them."""

import hashlib
import time

from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.claims import ClaimRequest, Claims

RETAIN = 600.0
PREFIX = "contract:"
NOW = float(int(time.time()))


def request(
    record: int, at: float = 0.0, delay: int = 60, campaign: int = 1, udid: str = "phone"
) -> ClaimRequest:
    """The request of one record; `at` in seconds from NOW."""
    owner = hashlib.md5(f"{campaign} {udid} {record}".encode()).digest()  # noqa: S324
    return ClaimRequest(campaign, udid, owner, NOW + at, delay)


def claims_on(redis: RedisClient, metrics: Metrics, prefix: str = PREFIX) -> Claims:
    return Claims(redis=redis, prefix=prefix, retain=RETAIN, deadline=5.0, metrics=metrics)


async def outcomes(claims: Claims, *requests: ClaimRequest, now: float = NOW) -> list[float | None]:
    """Each answer in seconds from NOW, None for a grant; all in one batch."""
    answers = await claims.take(requests, now)
    return [None if answer is None else answer - NOW for answer in answers]


async def keys_of(redis: RedisClient) -> list[bytes]:
    return [key async for key in redis.scan_iter(f"{PREFIX}*")]
