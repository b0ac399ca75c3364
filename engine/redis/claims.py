"""Claims: at most one send of a campaign to a device within the campaign's delay, in Redis.

All claims of a device are under one key. The owner of a claim may give it back or shorten it, once
a customer's service has answered.

Claims compare the times of detections: a claim denies detections before its `detected_at` plus the
delay. So a backlog leads to the same notifications as live traffic, and the same records always get
the same answer.
"""

import asyncio
import hashlib
from collections.abc import Container, Mapping, Sequence
from importlib.resources import files
from itertools import chain
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
    claim_tag,
    claims_key,
    newest_claims,
    requests_by_device,
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
    """The answers to requests.

    `forbidden_by` has None for a granted request, else the `detected_at` of a claim that denies it:
    a claim not later than the request, if there is one. (A later claim may belong to a record that
    will be delivered again, so it must be requested again then.)

    `read` has the newest claims of the devices that were to be read, as `detected_at` by campaign,
    from before the requests. A device with very many claims is left out; so is one whose call has
    read many of other devices already, and may be read with its next request.
    """

    forbidden_by: list[float | None]
    read: dict[str, Mapping[int, float]]


class Claims:
    """Takes lists of claims in one round trip, on a single server and on a cluster.

    `retain` (seconds) is how long a grant is remembered beyond its delay, for records that arrive
    late or are delivered again after a crash. Raises RedisError or TimeoutError. Some claims may be
    taken then; the same owner gets them again when it repeats its request.
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
        """Whether each request is granted, see ClaimAnswers."""
        return (await self.take_and_read(requests, now, ())).forbidden_by

    async def take_and_read(
        self, requests: Sequence[ClaimRequest], now: float, read: Container[str]
    ) -> ClaimAnswers:
        """Take claims in the order of `requests`; see take_of_devices."""
        return await self.take_of_devices(requests_by_device(requests), now, read)

    async def take_of_devices(
        self, devices: Sequence[DeviceRequests], now: float, read: Container[str]
    ) -> ClaimAnswers:
        """Take the claims of devices, those of each device in order.

        For each of `devices` whose udid is in `read`, all its claims are read in the same call.
        """
        count = sum(len(device.positions) for device in devices)
        answers = ClaimAnswers([None] * count, {})
        if not devices:
            return answers
        calls = list(calls_of_requests(devices, read, clustered=self._clustered))
        commands = [self._command(call, now, read) for call in calls]
        async with asyncio.timeout(self._deadline):
            replies = await self._call_scripts(commands)
        for call, reply in zip(calls, replies, strict=True):
            _sort_reply(call, reply, read, answers)
        granted = answers.forbidden_by.count(None)
        self._granted.inc(granted)
        self._denied.inc(count - granted)
        return answers

    def _command(self, call: list[DeviceRequests], now: float, read: Container[str]) -> list[Any]:
        keys = [claims_key(self._prefix, device.udid) for device in call]
        arguments = [(b"+" if device.udid in read else b"-") + device.packed for device in call]
        begin = ["EVALSHA", _TAKE_SHA, len(keys)]
        return [*begin, *keys, round(now * 1000), self._retain_ms, *arguments]

    async def _call_scripts(self, commands: list[list[Any]]) -> list[list[Any]]:
        """The replies of all script calls, in one round trip (on a cluster one for each node).

        If the script is missing, it is loaded and all calls are sent again: a call that did succeed
        gives its owners the same answers.
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
    call: list[DeviceRequests], reply: list[Any], read: Container[str], answers: ClaimAnswers
) -> None:
    """Add a reply to the answers: the answer to each claim, then the claims of each device read."""
    in_order = iter(reply)
    for position in chain.from_iterable(device.positions for device in call):
        if (answer := next(in_order)) != _GRANTED:
            answers.forbidden_by[position] = answer / 1000
    for device in call:
        if device.udid in read and (claims := next(in_order)) is not None:
            answers.read.setdefault(device.udid, newest_claims(claims))


class ClaimUpdater:
    """Gives claims back or shortens them, in one round trip. A repetition changes nothing.

    Raises RedisError or TimeoutError.
    """

    def __init__(self, *, redis: Redis | RedisCluster, prefix: str, deadline: float) -> None:
        self._prefix = prefix.encode()
        self._deadline = deadline
        self._clustered = isinstance(redis, RedisCluster)
        self._script = redis.register_script(_UPDATE)

    async def apply(self, updates: Sequence[ClaimUpdate]) -> int:
        """How many claims changed; the others belong to another owner or have expired."""
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
