"""Claims: at most one send of a campaign to a device within the campaign's delay, in Redis.

All claims of a device stand under one key. A claim may be given back or shortened by its owner,
once a customer's service has answered.

Time is the detections' own: a claim forbids what was detected before its `detected_at` plus the
delay. So a backlog gives the same notifications as a live stream, and the same records always
the same answer.
"""

import asyncio
import hashlib
from collections.abc import Container, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

from engine.process.metrics import Metrics
from engine.redis.claim_wire import (
    ClaimRequest,
    ClaimUpdate,
    DeviceRequests,
    calls_of_requests,
    calls_of_updates,
    claim_argument,
    claim_tag,
    claims_key,
    newest_claims,
    update_argument,
)

__all__ = [
    "ClaimRequest",
    "ClaimUpdate",
    "ClaimUpdater",
    "Claims",
    "claim_tag",
    "claims_key",
    "update_argument",
]

_SCRIPTS = files("engine.redis").joinpath("scripts")
_TAKE = _SCRIPTS.joinpath("claim.lua").read_text(encoding="utf-8")
_TAKE_SHA = hashlib.sha1(_TAKE.encode(), usedforsecurity=False).hexdigest()
_UPDATE = _SCRIPTS.joinpath("update_claims.lua").read_text(encoding="utf-8")
_GRANTED = 0


class ClaimAnswers(NamedTuple):
    """`forbidden_by` has for each request None when granted, else the `detected_at` of a claim
    that forbids it: one not later than the request's own, if there is. (A later one may belong to
    a record that is yet to be delivered again, and must then be asked for.)

    `read` has, for devices that were to be read, the `detected_at` of their newest claim by
    campaign, as it was before. Devices that hold very many are not in it.
    """

    forbidden_by: list[float | None]
    read: dict[str, Mapping[int, float]]


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
        """Whether each is granted, see ClaimAnswers."""
        return (await self.take_and_read(requests, now, ())).forbidden_by

    async def take_and_read(
        self, requests: Sequence[ClaimRequest], now: float, devices: Container[str]
    ) -> ClaimAnswers:
        """Take claims in the order of `requests`. All claims of those `devices` (udids) that are
        among the requests are read with them."""
        answers = ClaimAnswers([None] * len(requests), {})
        if not requests:
            return answers
        calls = list(calls_of_requests(requests, clustered=self._clustered))
        commands = [self._command(requests, call, now, devices) for call in calls]
        async with asyncio.timeout(self._deadline):
            replies = await self._ask(commands)
        for call, reply in zip(calls, replies, strict=True):
            _sort_reply(call, reply, devices, answers)
        granted = answers.forbidden_by.count(None)
        self._granted.inc(granted)
        self._denied.inc(len(requests) - granted)
        return answers

    def _command(
        self,
        requests: Sequence[ClaimRequest],
        call: list[DeviceRequests],
        now: float,
        devices: Container[str],
    ) -> list[Any]:
        keys = [claims_key(self._prefix, udid) for udid, _ in call]
        arguments = [
            b"".join(
                [
                    b"+" if udid in devices else b"-",
                    *[claim_argument(requests[position]) for position in positions],
                ]
            )
            for udid, positions in call
        ]
        begin = ["EVALSHA", _TAKE_SHA, len(keys)]
        return [*begin, *keys, round(now * 1000), self._retain_ms, *arguments]

    async def _ask(self, commands: list[list[Any]]) -> list[list[Any]]:
        """The answers of all script calls, in one round trip (on a cluster one a node).

        Where the script is missing, it is loaded and everything is asked again: a call that did
        go through gives its owners the same answer.
        """
        try:
            return await self._send(commands)
        except NoScriptError:
            await self._redis.script_load(_TAKE)
            return await self._send(commands)

    async def _send(self, commands: list[list[Any]]) -> list[list[Any]]:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[list[Any]] = await pipeline.execute()
        return replies


def _sort_reply(
    call: list[DeviceRequests], reply: list[Any], devices: Container[str], answers: ClaimAnswers
) -> None:
    """The answer to each claim, then what was read, device by device."""
    in_order = iter(reply)
    for _, positions in call:
        for position in positions:
            answer = next(in_order)
            if answer != _GRANTED:
                answers.forbidden_by[position] = answer / 1000
    for udid, _ in call:
        if udid in devices and (claims := next(in_order)) is not None:
            answers.read.setdefault(udid, newest_claims(claims))


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
            for call in calls_of_updates(updates, clustered=self._clustered):
                changed += sum(await self._call(call))
        return changed

    async def _call(self, updates: Sequence[ClaimUpdate]) -> list[int]:
        keys = [claims_key(self._prefix, each.udid) for each in updates]
        arguments = list(map(update_argument, updates))
        replies: list[int] = await self._script(keys=keys, args=arguments)
        return replies
