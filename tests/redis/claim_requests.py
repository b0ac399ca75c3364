"""Requests for claims, the answers to them, and those that brute force gives."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.claims import (
    NOT_COUNTED,
    RETURNABLE,
    Claims,
    DeviceRequests,
    pack_caps,
    pack_request,
)
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
    claims: Claims,
    requests: Sequence[ClaimRequest],
    now: float,
    caps: Sequence[Cap] = (),
    companies: Mapping[int, int] | None = None,
) -> list[Answer]:
    """The answers to requests in one batch; `companies` of campaigns, all of them 1 without."""

    def caps_of(each: ClaimRequest) -> bytes:
        company = companies[each.campaign_id] if companies else 1
        return pack_caps(company, tuple(caps)) if caps else b""

    devices = [DeviceRequests(each.udid, each.packed(), caps=caps_of(each)) for each in requests]
    denied = [by for (by,) in (await claims.take(devices, now)).forbidden_by]
    return ["capped" if isinstance(by, list) else by / 1000 if by else None for by in denied]


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


def claims_on(redis: RedisClient, metrics: Metrics) -> Claims:
    return Claims(redis=redis, prefix=PREFIX, retain=RETAIN, deadline=5.0, metrics=metrics)


async def outcomes(
    claims: Claims, *requests: ClaimRequest, now: float = NOW, caps: Sequence[Cap] = ()
) -> list[Answer]:
    """Each answer, times in seconds from NOW; all in one batch."""
    answers = await take(claims, requests, now, caps)
    return [each - NOW if isinstance(each, float) else each for each in answers]


async def keys_of(redis: RedisClient) -> list[bytes]:
    return [key async for key in redis.scan_iter(f"{PREFIX}*")]


class ClaimsOracle:
    """The answers that `Claims` and `ClaimUpdater` must give for the campaigns of one company.

    A claim denies detections before its detected_at plus the delay; the record that owns a claim
    gets it again. No stretch of a cap's length has more than it allows.
    """

    def __init__(self, caps: Sequence[Cap] = ()) -> None:
        self._caps = caps
        # (owner, time) in order of time, and what caps count: (owner, time, whether returnable).
        self._claims: dict[tuple[int, str], list[tuple[bytes, float]]] = {}
        self._places: dict[str, list[tuple[bytes, float, bool]]] = {}

    def take(self, request: ClaimRequest) -> Answer:
        """Of several claims that deny it the newest that is not after it, else the newest."""
        owner, at, claims, places = self._held(request)
        if (owner, at) in claims:
            return None
        denying: list[float] = [each for _, each in claims if at < each + request.delay]
        if denying:
            return max([each for each in denying if each <= at] or denying)
        if request.counted and not _place_of(owner, at, places):
            if not self._has_room(places, at):
                return "capped"
            places.append((owner, at, request.counted == RETURNABLE))
        if request.delay:
            claims.append((owner, at))
        return None

    def settle(self, request: ClaimRequest, keep: int, fate: str) -> bool:
        """What becomes of claim and place of a message that was sent, has failed or was refused."""
        owner, at, claims, places = self._held(request)
        at //= 1  # such a message has whole seconds
        place = _place_of(owner, at, places) if request.counted else None
        if request.counted and fate == "sent" and not place and not self._has_room(places, at):
            return False
        changed = not request.delay or self._change_claim(claims, owner, at, request.delay, keep)
        if place and (fate != "failed" or place[2]):
            places.remove(place)
        if request.counted and fate == "sent" and changed:
            places.append((owner, place[1] if place else at, False))
        return changed

    def _change_claim(
        self, claims: list[tuple[bytes, float]], owner: bytes, at: float, delay: int, keep: int
    ) -> bool:
        """An owner that has lost its claim gets it again, unless another one denies that."""
        number = next((n for n, (each, _) in enumerate(claims) if each == owner), None)
        if number is None:
            if keep < delay or any(at < each + delay for _, each in claims):
                return False
            claims.append((owner, at))
            return True
        granted_at = claims[number][1]
        if keep == 0:
            del claims[number]
        elif granted_at // 1 != at:
            return False  # it was shortened before
        else:
            claims[number] = owner, round(granted_at - (delay - keep), 3)
        return True

    def _held(self, request: ClaimRequest) -> tuple[bytes, float, list[Any], list[Any]]:
        claims = self._claims.setdefault((request.campaign_id, request.udid), [])
        places = self._places.setdefault(request.udid, [])
        return request.notification_id, request.detected_at, claims, places

    def _has_room(self, places: list[tuple[bytes, float, bool]], at: float) -> bool:
        times = [at, *(each for _, each, _ in places)]
        return all(
            sum(begin <= each < begin + cap.seconds for each in times) <= cap.most
            for cap in self._caps
            for begin in times
        )


def _place_of(
    owner: bytes, at: float, places: list[tuple[bytes, float, bool]]
) -> tuple[bytes, float, bool] | None:
    """Its newest place, of a detection that was not before."""
    own = [each for each in places if each[0] == owner and each[1] >= at]
    return max(own, key=lambda each: each[1], default=None)
