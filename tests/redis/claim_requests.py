"""Requests for claims, and the answers to them, as both suites of claims use them."""

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.claims import NOT_COUNTED, Claims, DeviceRequests, pack_request

RETAIN = 600.0
PREFIX = "contract:"
NOW = float(int(time.time()))


class ClaimRequest(NamedTuple):
    """`notification_id` has 16 bytes, `detected_at` is in epoch seconds."""

    campaign_id: int
    udid: str
    notification_id: bytes
    detected_at: float
    delay: int


async def take(claims: Claims, requests: Sequence[ClaimRequest], now: float) -> list[float | None]:
    """None for each granted request, else the detected_at (epoch s) of what denies it."""
    return (await take_and_read(claims, requests, now, ()))[0]


async def take_and_read(
    claims: Claims, requests: Sequence[ClaimRequest], now: float, read: Collection[str]
) -> tuple[list[float | None], dict[str, Mapping[int, float]]]:
    devices, left = list[DeviceRequests](), set(read)
    for number, udid, owner, at, delay in requests:
        packed = pack_request(number, owner, round(at * 1000), delay * 1000, NOT_COUNTED)
        devices.append(DeviceRequests(udid, packed, udid in left))
        left.discard(udid)
    answers = await claims.take(devices, now)
    denied = [by for (by,) in answers.forbidden_by if isinstance(by, int)]
    return [at / 1000 if at else None for at in denied], answers.read


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
    answers = await take(claims, requests, now)
    return [None if answer is None else answer - NOW for answer in answers]


async def keys_of(redis: RedisClient) -> list[bytes]:
    return [key async for key in redis.scan_iter(f"{PREFIX}*")]
