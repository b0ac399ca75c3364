"""Claims: at most one send of a campaign to a device within the campaign's delay, in Redis.

All claims of a device are under one key. The owner of a claim may give it back or shorten it, once
a customer's service has answered.

Claims compare the times of detections: a claim denies detections before its `detected_at` plus the
delay. So a backlog leads to the same notifications as live traffic, and the same records always get
the same answer.
"""

import asyncio
import hashlib
import uuid
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

from catalog.chunks import chunked
from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.devices import DeviceKey
from rules.explanation import HeldClaim

_TAGS = 64  # slots over which a cluster spreads devices
_MOST_TAKEN = 2000  # claims in a script call, so that no call blocks Redis for long
_MOST_READ = 32  # devices in a script call, which reads up to 4,096 claims (claim.lua)
_MOST_UPDATED = 1000
_REQUEST = Struct(">q16sqq")  # campaign, owner, detected_at (epoch ms), delay (ms)
REQUEST_BYTES = _REQUEST.size
_DIGITS = 14  # of the time at the end of a claim in Redis


class ClaimRequest(NamedTuple):
    """A request to send `campaign_id` to `udid` because of a detection at `detected_at` (epoch s).

    `notification_id` (16 bytes) identifies campaign, device and record: it will own the claim.
    `delay` in seconds is above 0.
    """

    campaign_id: int
    udid: str
    notification_id: bytes
    detected_at: float
    delay: int


class DeviceRequests(NamedTuple):
    """The requests of one device: their positions among all, in order, and their bytes for Redis
    (REQUEST_BYTES each)."""

    udid: str
    positions: list[int]
    packed: bytes


class ClaimUpdate(NamedTuple):
    """A change of the claim that `notification_id` (16 bytes) owns on a campaign and device.

    The claim was taken for a detection at `detected_at` (epoch s; the whole second counts) with
    `delay` seconds. From now on the claim denies others for `keep` seconds; 0 gives it back, and
    the whole delay takes it again if it was lost.
    """

    campaign_id: int
    udid: str
    notification_id: bytes
    detected_at: float
    delay: int
    keep: int


def requests_by_device(requests: Iterable[ClaimRequest]) -> list[DeviceRequests]:
    """Requests grouped by device."""
    positions: dict[str, list[int]] = {}
    packed: dict[str, list[bytes]] = {}
    for position, (campaign_id, udid, owner, detected_at, delay) in enumerate(requests):
        if udid not in positions:
            positions[udid], packed[udid] = [], []
        positions[udid].append(position)
        packed[udid].append(pack_request(campaign_id, owner, detected_at, delay))
    return [DeviceRequests(udid, positions[udid], b"".join(packed[udid])) for udid in positions]


def pack_request(campaign_id: int, owner: bytes, detected_at: float, delay: int) -> bytes:
    """A request for Redis, which reads few long arguments faster than many short ones."""
    return _REQUEST.pack(campaign_id, owner, round(detected_at * 1000), delay * 1000)


def calls_of_requests(
    devices: Sequence[DeviceRequests], read: Container[str], *, clustered: bool
) -> Iterator[list[DeviceRequests]]:
    """Groups requests into script calls. The script also reads all claims of devices in `read`.

    The claims that a call takes and the devices that it reads are bounded in number. On a cluster,
    all keys of a call are in one slot.
    """
    if not clustered:
        yield from _bounded(devices, read)
        return
    by_tag: dict[int, list[DeviceRequests]] = {}
    for device in devices:
        by_tag.setdefault(claim_tag(device.udid.encode()), []).append(device)
    for of_tag in by_tag.values():
        yield from _bounded(of_tag, read)


def _bounded(
    devices: Iterable[DeviceRequests], read: Container[str]
) -> Iterator[list[DeviceRequests]]:
    """Calls of a bounded number of claims; a device with more claims is in several calls."""
    call: list[DeviceRequests] = []
    claims = reads = 0
    for device in devices:
        is_read = device.udid in read
        few = len(device.positions) <= _MOST_TAKEN
        for part in [device] if few else _parts(device):
            claims += len(part.positions)
            reads += is_read
            if call and (claims > _MOST_TAKEN or reads > _MOST_READ):
                yield call
                call, claims, reads = [], len(part.positions), int(is_read)
            call.append(part)
    if call:
        yield call


def _parts(device: DeviceRequests) -> Iterator[DeviceRequests]:
    udid, positions, packed = device
    size = _MOST_TAKEN * REQUEST_BYTES
    for number, part in enumerate(chunked(positions, _MOST_TAKEN)):
        yield DeviceRequests(udid, part, packed[number * size : (number + 1) * size])


def calls_of_updates(
    updates: Sequence[ClaimUpdate], *, clustered: bool
) -> Iterator[list[ClaimUpdate]]:
    """Updates, grouped into script calls as `calls_of_requests` groups requests."""
    by_tag: dict[int, list[ClaimUpdate]] = {}
    for update in updates:
        tag = claim_tag(update.udid.encode()) if clustered else 0
        by_tag.setdefault(tag, []).append(update)
    for of_tag in by_tag.values():
        yield from chunked(of_tag, _MOST_UPDATED)


def claims_key(prefix: bytes, udid: str) -> bytes:
    """The key of the claims on one device."""
    name = udid.encode()
    return b"%bclaims:{%d}:%b" % (prefix, claim_tag(name), name)


def newest_claims(read: Sequence[bytes]) -> dict[int, float]:
    """The `detected_at` (epoch s) of the newest claim by campaign, from the script's reply."""
    in_turn = iter(read)
    return {
        int(campaign): int(value[-_DIGITS:]) / 1000
        for campaign, value in zip(in_turn, in_turn, strict=True)
    }


def update_argument(update: ClaimUpdate) -> bytes:
    """An update as text; there are few updates."""
    return b"%019d%b%014d%014d%014d" % (
        update.campaign_id,
        update.notification_id,
        round(update.detected_at * 1000),
        update.delay * 1000,
        update.keep * 1000,
    )


def claim_tag(udid: bytes) -> int:
    """The hash tag of a device's claims, which determines their slot in a cluster."""
    return crc32(udid) % _TAGS


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
        self, requests: Sequence[ClaimRequest], now: float, read: Collection[str]
    ) -> ClaimAnswers:
        """Take claims in the order of `requests`; see take_of_devices."""
        return await self.take_of_devices(requests_by_device(requests), now, read)

    async def take_of_devices(
        self, devices: Sequence[DeviceRequests], now: float, read: Collection[str]
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
    call: list[DeviceRequests], reply: list[Any], read: Collection[str], answers: ClaimAnswers
) -> None:
    """Add a reply to the answers: the answer to each claim, then the claims of each device read."""
    in_order = iter(reply)
    for device in call:
        for position in device.positions:
            if (answer := next(in_order)) != _GRANTED:
                answers.forbidden_by[position] = answer / 1000
    for device in call if read else ():
        if device.udid in read and (claims := next(in_order)) is not None:
            answers.read.setdefault(device.udid, newest_claims(claims))


class ClaimUpdater:
    """Gives claims back, shortens or confirms them, in one round trip.

    A repetition changes nothing.
    `retain` as for Claims. Raises RedisError or TimeoutError.
    """

    def __init__(
        self, *, redis: Redis | RedisCluster, prefix: str, deadline: float, retain: float = 600.0
    ) -> None:
        self._prefix = prefix.encode()
        self._deadline = deadline
        self._retain_ms = int(retain * 1000)
        self._clustered = isinstance(redis, RedisCluster)
        self._script = redis.register_script(_UPDATE)

    async def apply(self, updates: Sequence[ClaimUpdate]) -> int:
        """How many claims changed; the others belong to another owner or have expired."""
        return sum(await self.settle(updates))

    async def settle(self, updates: Sequence[ClaimUpdate]) -> list[bool]:
        """Whether each claim changed, or, where `keep` is the delay, whether the owner has it.

        An owner that has lost its claim gets it again, unless another detection holds it.
        """
        changed: dict[int, bool] = {}
        positions = {id(update): position for position, update in enumerate(updates)}
        async with asyncio.timeout(self._deadline):
            for call in calls_of_updates(updates, clustered=self._clustered):
                for update, reply in zip(call, await self._call(call), strict=True):
                    changed[positions[id(update)]] = bool(reply)
        return [changed[position] for position in range(len(updates))]

    async def _call(self, updates: Sequence[ClaimUpdate]) -> list[int]:
        keys = [claims_key(self._prefix, each.udid) for each in updates]
        arguments: list[bytes | int] = [*map(update_argument, updates), self._retain_ms]
        replies: list[int] = await self._script(keys=keys, args=arguments)
        return replies


# The lengths of an entry and its owner, as scripts/claim.lua writes them; the newest entry is last.
_OWNER = 16
_ENTRY = 30


class ClaimReader:
    """Reads claims. `deadline` in seconds."""

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = prefix.encode()
        self._deadline = deadline

    async def newest(
        self, device: DeviceKey, campaign_ids: Collection[int]
    ) -> dict[int, HeldClaim]:
        """The device's newest claim by campaign, for campaigns with a claim.

        Raises RedisError, OSError or TimeoutError.
        """
        if not campaign_ids:
            return {}
        pipeline: Any = self._redis.pipeline(transaction=False)
        for campaign_id in campaign_ids:
            pipeline.hget(claims_key(self._prefix, device.udid), str(campaign_id))
        async with asyncio.timeout(self._deadline):
            values = await pipeline.execute()
        found = zip(campaign_ids, values, strict=True)
        return {number: _newest(value) for number, value in found if value}


def _newest(grants: bytes) -> HeldClaim:
    last = grants[-_ENTRY:]
    return HeldClaim(str(uuid.UUID(bytes=last[:_OWNER])), int(last[_OWNER:]) / 1000)
