"""Claims: at most one send of a campaign to a device within the campaign's delay, in Redis.

Time is the detections' own: a claim forbids what was detected before its `detected_at` plus the
delay. So a backlog gives the same notifications as a live stream, and the same records always
the same answer.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple
from zlib import crc32

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

from engine.process.metrics import Metrics

_SCRIPT = files("engine.redis").joinpath("scripts/claim.lua").read_text(encoding="utf-8")
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_TAGS = 64  # slots over which a cluster spreads devices
_GRANTED = 0
_LARGEST_CALL = 2000  # claims a script call, so that no call holds Redis for long


class ClaimRequest(NamedTuple):
    """A wish to send `campaign_id` to `udid` because of a detection at `detected_at` (epoch s).

    `owner` is the 16 bytes of the notification id: the identity of campaign, device and record.
    `delay` in seconds is above 0.
    """

    campaign_id: int
    udid: str
    owner: bytes
    detected_at: float
    delay: int


class Claims:
    """Takes claims, a list in one round trip, on a single server and on a cluster.

    `retain` (seconds) is how long a grant is remembered beyond its delay: what comes late, or is
    delivered again after a crash, must find it. Raises RedisError or TimeoutError; nothing is half
    taken that asking again with the same owner would not give again.
    """

    def __init__(
        self,
        *,
        redis: Redis | RedisCluster,
        prefix: str,
        retain: float,
        deadline: float,
        metrics: Metrics,
    ) -> None:
        self._redis = redis
        self._prefix = prefix.encode()
        self._retain_ms = int(retain * 1000)
        self._deadline = deadline
        self._clustered = isinstance(redis, RedisCluster)
        self._granted = metrics.claims.labels("granted")
        self._denied = metrics.claims.labels("denied")

    async def take(self, requests: Sequence[ClaimRequest], now: float) -> list[float | None]:
        """For each request None when granted, else the `detected_at` of a claim that forbids it.

        One not later than the request's own, if there is: a later one may belong to a record
        that is yet to be delivered again, and must then be asked for.
        """
        if not requests:
            return []
        answers: list[float | None] = [None] * len(requests)
        calls = self._calls(requests)
        async with asyncio.timeout(self._deadline):
            replies = await self._ask([[requests[i] for i in call] for call in calls], now)
        for positions, reply in zip(calls, replies, strict=True):
            for position, answer in zip(positions, reply, strict=True):
                answers[position] = None if answer == _GRANTED else answer / 1000
        granted = answers.count(None)
        self._granted.inc(granted)
        self._denied.inc(len(answers) - granted)
        return answers

    def _calls(self, requests: Sequence[ClaimRequest]) -> list[list[int]]:
        """Positions by script call: one call, or in a cluster one a slot."""
        by_tag: dict[int, list[int]] = {}
        for position, request in enumerate(requests):
            tag = claim_tag(request.udid.encode()) if self._clustered else 0
            by_tag.setdefault(tag, []).append(position)
        return [
            positions[start : start + _LARGEST_CALL]
            for positions in by_tag.values()
            for start in range(0, len(positions), _LARGEST_CALL)
        ]

    async def _ask(self, calls: list[list[ClaimRequest]], now: float) -> list[list[int]]:
        """The answers of all script calls, in one round trip (on a cluster one a node).

        The script is loaded where it is missing, and everything is asked again: a call that did
        go through gives its owners the same answer.
        """
        try:
            return await self._send(calls, now)
        except NoScriptError:
            await self._redis.script_load(_SCRIPT)
            return await self._send(calls, now)

    async def _send(self, calls: list[list[ClaimRequest]], now: float) -> list[list[int]]:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for requests in calls:
            keys = [claim_key(self._prefix, each.campaign_id, each.udid) for each in requests]
            wishes = [_wish(request) for request in requests]
            pipeline.execute_command(
                "EVALSHA", _SHA, len(keys), *keys, round(now * 1000), self._retain_ms, *wishes
            )
        replies: list[list[int]] = await pipeline.execute()
        return replies


def claim_key(prefix: bytes, campaign_id: int, udid: str) -> bytes:
    """Where the claims of one campaign on one device lie."""
    name = udid.encode()
    return b"%bclaim:{%d}:%d:%b" % (prefix, claim_tag(name), campaign_id, name)


def _wish(request: ClaimRequest) -> bytes:
    """One argument a claim, of fixed width: Redis reads few long ones faster than many short."""
    at = round(request.detected_at * 1000)
    return b"%b%014d%014d" % (request.owner, at, request.delay * 1000)


def claim_tag(udid: bytes) -> int:
    """The slot of a cluster in which a device's claims lie together."""
    return crc32(udid) % _TAGS
