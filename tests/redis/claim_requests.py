"""Requests for claims, the answers to them, and those that brute force gives."""

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.claims import NOT_COUNTED, Claims, DeviceRequests, pack_caps, pack_request
from rules.model import Cap

RETAIN = 600.0
PREFIX = "contract:"
NOW = float(int(time.time()))

# None for a grant, else the detected_at (epoch s) of the claim that denies it, or its caps.
Answer: TypeAlias = float | Literal["capped"] | None


class ClaimRequest(NamedTuple):
    """`notification_id` has 16 bytes, `detected_at` is in epoch seconds."""

    campaign_id: int
    udid: str
    notification_id: bytes
    detected_at: float
    delay: int
    counted: int = NOT_COUNTED

    def packed(self) -> bytes:
        at = round(self.detected_at * 1000)
        owner, delay = self.notification_id, self.delay * 1000
        return pack_request(self.campaign_id, owner, at, delay, self.counted)


async def take(
    claims: Claims, requests: Sequence[ClaimRequest], now: float, caps: Sequence[Cap] = ()
) -> list[Answer]:
    return (await take_and_read(claims, requests, now, (), caps))[0]


async def take_and_read(
    claims: Claims,
    requests: Sequence[ClaimRequest],
    now: float,
    read: Collection[str],
    caps: Sequence[Cap] = (),
) -> tuple[list[Answer], dict[str, Mapping[int, float]]]:
    devices, left = list[DeviceRequests](), set(read)
    packed_caps = pack_caps(1, tuple(caps)) if caps else b""
    for each in requests:
        devices.append(DeviceRequests(each.udid, each.packed(), each.udid in left, packed_caps))
        left.discard(each.udid)
    answers = await claims.take(devices, now)
    denied = [by for (by,) in answers.forbidden_by]
    return [
        "capped" if isinstance(by, list) else by / 1000 if by else None for by in denied
    ], answers.read


def request(
    record: int,
    at: float = 0.0,
    delay: int = 60,
    campaign: int = 1,
    udid: str = "phone",
    counted: int = NOT_COUNTED,
) -> ClaimRequest:
    """The request of one record; `at` in seconds from NOW."""
    owner = hashlib.md5(f"{campaign} {udid} {record}".encode()).digest()  # noqa: S324
    return ClaimRequest(campaign, udid, owner, NOW + at, delay, counted)


def claims_on(redis: RedisClient, metrics: Metrics, prefix: str = PREFIX) -> Claims:
    return Claims(redis=redis, prefix=prefix, retain=RETAIN, deadline=5.0, metrics=metrics)


async def outcomes(
    claims: Claims, *requests: ClaimRequest, now: float = NOW, caps: Sequence[Cap] = ()
) -> list[Answer]:
    """Each answer, times in seconds from NOW; all in one batch."""
    answers = await take(claims, requests, now, caps)
    return [each - NOW if isinstance(each, float) else each for each in answers]


async def keys_of(redis: RedisClient) -> list[bytes]:
    return [key async for key in redis.scan_iter(f"{PREFIX}*")]


class ClaimsOracle:
    """The answers that `Claims` must give, from a list of grants that only grows.

    A claim denies detections before its detected_at plus the delay; the record that owns a claim
    gets it again. No stretch of a cap's length has more than it allows.
    """

    def __init__(self, caps: Sequence[Cap] = ()) -> None:
        self._caps = caps
        self._grants: dict[str, list[ClaimRequest]] = {}

    def take(self, request: ClaimRequest) -> Answer:
        """Of several claims that deny it the newest that is not after it, else the newest."""
        mine = self._grants.setdefault(request.udid, [])
        if any(each.notification_id == request.notification_id for each in mine):
            return None
        at = request.detected_at
        denying = [
            each.detected_at
            for each in mine
            if each.campaign_id == request.campaign_id
            and request.delay
            and at < each.detected_at + request.delay
        ]
        if denying:
            return max([each for each in denying if each <= at] or denying)
        times = [each.detected_at for each in (*mine, request) if each.counted]
        if request.counted and any(
            sum(begin <= each < begin + cap.seconds for each in times) > cap.most
            for cap in self._caps
            for begin in times
        ):
            return "capped"
        mine.append(request)
        return None
