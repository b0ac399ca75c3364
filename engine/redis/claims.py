"""Claims: at most one send of a campaign to a device within the campaign's delay, in Redis.

A claim may be given back or shortened by its owner, once a customer's service has answered.

Time is the detections' own: a claim forbids what was detected before its `detected_at` plus the
delay. So a backlog gives the same notifications as a live stream, and the same records always
the same answer.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

from catalog.chunks import chunked
from engine.process.metrics import Metrics

Request = TypeVar("Request", "ClaimRequest", "ClaimUpdate")

_SCRIPTS = files("engine.redis").joinpath("scripts")
_TAKE = _SCRIPTS.joinpath("claim.lua").read_text(encoding="utf-8")
_TAKE_SHA = hashlib.sha1(_TAKE.encode(), usedforsecurity=False).hexdigest()
_UPDATE = _SCRIPTS.joinpath("update_claims.lua").read_text(encoding="utf-8")
_TAGS = 64  # slots over which a cluster spreads devices
_GRANTED = 0
_MOST_TAKEN = 2000  # claims a script call, so that no call holds Redis for long
_MOST_UPDATED = 1000


class ClaimRequest(NamedTuple):
    """A request to send `campaign_id` to `udid` because of a detection at `detected_at` (epoch s).

    `owner` is the 16 bytes of the notification id: the identity of campaign, device and record.
    `delay` in seconds is above 0.
    """

    campaign_id: int
    udid: str
    owner: bytes
    detected_at: float
    delay: int


class ClaimUpdate(NamedTuple):
    """What is to become of the claim of `owner` (16 bytes) on a campaign's device.

    The claim was taken for a detection at `detected_at` (epoch s; the whole second counts) with
    `delay` seconds. From then on it is to forbid for `keep` seconds; 0 gives it back.
    """

    campaign_id: int
    udid: str
    owner: bytes
    detected_at: float
    delay: int
    keep: int


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
        calls = list(_calls(requests, clustered=self._clustered, most=_MOST_TAKEN))
        async with asyncio.timeout(self._deadline):
            replies = await self._ask([[requests[i] for i in call] for call in calls], now)
        for positions, reply in zip(calls, replies, strict=True):
            for position, answer in zip(positions, reply, strict=True):
                answers[position] = None if answer == _GRANTED else answer / 1000
        granted = answers.count(None)
        self._granted.inc(granted)
        self._denied.inc(len(answers) - granted)
        return answers

    async def _ask(self, calls: list[list[ClaimRequest]], now: float) -> list[list[int]]:
        """The answers of all script calls, in one round trip (on a cluster one a node).

        Where the script is missing, it is loaded and everything is asked again: a call that did
        go through gives its owners the same answer.
        """
        try:
            return await self._send(calls, now)
        except NoScriptError:
            await self._redis.script_load(_TAKE)
            return await self._send(calls, now)

    async def _send(self, calls: list[list[ClaimRequest]], now: float) -> list[list[int]]:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for requests in calls:
            keys = [claim_key(self._prefix, each.campaign_id, each.udid) for each in requests]
            arguments = map(_argument, requests)
            pipeline.execute_command(
                "EVALSHA",
                _TAKE_SHA,
                len(keys),
                *keys,
                round(now * 1000),
                self._retain_ms,
                *arguments,
            )
        replies: list[list[int]] = await pipeline.execute()
        return replies


class ClaimUpdater:
    """Gives claims back or shortens them, a list in one round trip. Repeating changes nothing more.

    Raises RedisError or TimeoutError.
    """

    def __init__(self, *, redis: Redis | RedisCluster, prefix: str, deadline: float) -> None:
        self._prefix = prefix.encode()
        self._deadline = deadline
        self._clustered = isinstance(redis, RedisCluster)
        self._script = redis.register_script(_UPDATE)

    async def apply(self, updates: Sequence[ClaimUpdate]) -> int:
        """How many claims changed; the others belong to somebody else, or have gone."""
        changed = 0
        async with asyncio.timeout(self._deadline):
            for call in _calls(updates, clustered=self._clustered, most=_MOST_UPDATED):
                changed += sum(await self._call([updates[position] for position in call]))
        return changed

    async def _call(self, updates: Sequence[ClaimUpdate]) -> list[int]:
        keys = [claim_key(self._prefix, each.campaign_id, each.udid) for each in updates]
        arguments = list(map(update_argument, updates))
        replies: list[int] = await self._script(keys=keys, args=arguments)
        return replies


def _calls(requests: Sequence[Request], *, clustered: bool, most: int) -> Iterator[list[int]]:
    """Positions by script call: of at most `most`, and in a cluster of one slot."""
    by_tag: dict[int, list[int]] = {}
    for position, request in enumerate(requests):
        tag = claim_tag(request.udid.encode()) if clustered else 0
        by_tag.setdefault(tag, []).append(position)
    for positions in by_tag.values():
        yield from chunked(positions, most)


def claim_key(prefix: bytes, campaign_id: int, udid: str) -> bytes:
    """Where the claims of one campaign on one device lie."""
    name = udid.encode()
    return b"%bclaim:{%d}:%d:%b" % (prefix, claim_tag(name), campaign_id, name)


def _argument(claim: ClaimRequest | ClaimUpdate) -> bytes:
    """One argument a claim, of fixed width: Redis reads few long ones faster than many short."""
    return b"%b%014d%014d" % (claim.owner, round(claim.detected_at * 1000), claim.delay * 1000)


def update_argument(update: ClaimUpdate) -> bytes:
    """The same with the seconds to keep."""
    return _argument(update) + b"%014d" % (update.keep * 1000)


def claim_tag(udid: bytes) -> int:
    """The slot of a cluster in which a device's claims lie together."""
    return crc32(udid) % _TAGS
