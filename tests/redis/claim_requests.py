"""Requests for claims, the answers to them, and those that brute force gives."""

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


class ClaimsOracle:
    """The answers that `Claims` must give, from a list of grants that only grows.

    A claim denies detections before its detected_at plus the delay; the record that owns a claim
    gets it again.
    """

    def __init__(self) -> None:
        self._grants: dict[tuple[int, str], list[tuple[bytes, float]]] = {}

    def take(self, request: ClaimRequest) -> float | None:
        """None when granted, else the detected_at of a grant that forbids it.

        The newest of those not after it, else the newest.
        """
        forbids = self.would_forbid(request)
        if forbids is None:
            grants = self._grants.setdefault((request.campaign_id, request.udid), [])
            grants.append((request.notification_id, request.detected_at))
        return forbids

    def would_forbid(self, request: ClaimRequest) -> float | None:
        """The answer; nothing is granted."""
        grants = self._grants.get((request.campaign_id, request.udid), [])
        if any(owner == request.notification_id for owner, _ in grants):
            return None
        forbidding = [at for _, at in grants if request.detected_at < at + request.delay]
        before = [at for at in forbidding if at <= request.detected_at]
        return max(before or forbidding, default=None)
