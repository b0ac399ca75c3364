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
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from struct import Struct, pack
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

from catalog.database import chunked
from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.devices import DeviceKey, copy_key, decode_copy
from rules.explanation import DeviceHistory, HeldClaim
from rules.model import Cap

_TAGS = 64  # slots over which a cluster spreads devices
_MOST_READ = 32  # devices in a script call, which reads up to 4,096 claims (claim.lua)
_MOST_UPDATED = 1000
_REQUEST = Struct(">q16sqqB")
REQUEST_BYTES = _REQUEST.size
_MOST_BYTES = 2000 * REQUEST_BYTES  # in a script call, so that no call blocks Redis for long
_DEVICE = Struct(">H?BI")  # bytes of the key, whether it is read, bytes of caps and requests
_DIGITS = 14  # of the time at the end of a claim in Redis


class DeviceRequests(msgspec.Struct, frozen=True, gc=False):
    """Requests to send campaigns to one device because of one detection, in order.

    `packed` has REQUEST_BYTES for each (pack_request). With `read` all claims of the device are
    read, too, as they were before. `caps` are the company's, packed, if they count any request.
    """

    udid: str
    packed: bytes
    read: bool = False
    caps: bytes = b""


class CapPlace(NamedTuple):
    """The place that a notification takes in its company's `caps` (packed), and its fate: it was
    sent, the call for it failed, or the brokers have refused it. A failed one is given back unless
    it was confirmed as sent before, one that was refused always."""

    caps: bytes
    fate: Literal["sent", "failed", "refused"]


class ClaimUpdate(NamedTuple):
    """A change of the claim that `notification_id` (16 bytes) owns on a campaign and device.

    The claim was taken for a detection at `detected_at` (epoch s; the whole second counts) with
    `delay` seconds. From now on the claim denies others for `keep` seconds; 0 gives it back, and
    the whole delay takes it again if it was lost. With delay 0 there is no claim, only the `place`.
    """

    campaign_id: int
    udid: str
    notification_id: bytes
    detected_at: float
    delay: int
    keep: int
    place: CapPlace | None = None


# A request: campaign id, owner, detected_at (epoch ms), delay (ms), and whether the company's caps
# count it: NOT_COUNTED, COUNTED, or RETURNABLE if a call may fail and give its place back. The
# owner is the id of the notification (16 bytes), which identifies campaign, device and record.
pack_request = _REQUEST.pack
NOT_COUNTED, COUNTED, RETURNABLE = range(3)


@lru_cache(maxsize=4096)
def pack_caps(company_id: int, caps: tuple[Cap, ...]) -> bytes:
    """The caps of a company, as caps.lua unpacks them."""
    packed = [pack(">Hq", cap.most, cap.seconds * 1000) for cap in caps]
    return pack(">q", company_id) + b"".join(packed)


class _Call:
    """A script call: `parts` are its packed requests, of the devices at `positions` in the list."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.parts: list[bytes] = []
        self.positions: list[tuple[int, int]] = []  # with the number of requests
        self.read: list[str] = []  # devices
        self.size = 0

    def add(self, position: int, device: DeviceRequests, key: bytes) -> None:
        """Add requests of a device with this key."""
        caps, packed = device.caps, device.packed
        size = len(packed)
        self.parts += (_DEVICE.pack(len(key), device.read, len(caps), size), key, caps, packed)
        self.positions.append((position, size // REQUEST_BYTES))
        self.size += size
        if device.read:
            self.read.append(device.udid)

    def sort(self, reply: list[Any], answers: "ClaimAnswers") -> int:
        """Add a reply to the answers: the answer to each claim, then the claims of each device
        read. Returns the number of claims."""
        begin, forbidden_by = 0, answers.forbidden_by
        for position, count in self.positions:
            forbidden_by[position] += reply[begin : begin + count]
            begin += count
        for udid, claims in zip(self.read, reply[begin:], strict=True):
            if claims is not None:
                answers.read.setdefault(udid, newest_claims(claims))
        return begin


def calls_of_requests(
    devices: Sequence[DeviceRequests], prefix: bytes, *, clustered: bool
) -> list[_Call]:
    """Groups requests into script calls.

    The claims that a call takes and the devices that it reads are bounded in number; a device with
    more claims is in several calls. On a cluster, all keys of a call are in one slot.
    """
    calls, open_calls = list[_Call](), dict[int, _Call]()
    for position, device in enumerate(devices):
        name = device.udid.encode()
        tag = crc32(name) % _TAGS
        key, group = b"%bclaims:{%d}:%b" % (prefix, tag, name), tag if clustered else 0
        for part in (device,) if len(device.packed) <= _MOST_BYTES else _parts(device):
            call = open_calls.get(group)
            if (
                call is None
                or call.size + len(part.packed) > _MOST_BYTES
                or len(call.read) + part.read > _MOST_READ
            ):
                call = open_calls[group] = _Call(key)
                calls.append(call)
            call.add(position, part, key)
    return calls


def _parts(device: DeviceRequests) -> Iterator[DeviceRequests]:
    for begin in range(0, len(device.packed), _MOST_BYTES):
        part = device.packed[begin : begin + _MOST_BYTES]
        yield DeviceRequests(device.udid, part, device.read and not begin, device.caps)


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
        int(field): int(value[-_DIGITS:]) / 1000
        for field, value in zip(in_turn, in_turn, strict=True)
        if field.isdigit()  # else a company's places
    }


def places_field(company_id: int) -> str:
    """The field of the places that a company's caps count, in the record of a device."""
    return f"k{company_id}"


def update_argument(update: ClaimUpdate) -> bytes:
    """An update as text; there are few updates."""
    place = update.place
    return b"%019d%b%014d%014d%014d%b" % (
        update.campaign_id,
        update.notification_id,
        round(update.detected_at * 1000),
        update.delay * 1000,
        update.keep * 1000,
        b"" if place is None else place.fate[0].encode() + place.caps,
    )


def claim_tag(udid: bytes) -> int:
    """The hash tag of a device's claims, which determines their slot in a cluster."""
    return crc32(udid) % _TAGS


_SCRIPTS = files("engine.redis").joinpath("scripts")
_CAPS = _SCRIPTS.joinpath("caps.lua").read_text(encoding="utf-8")
_TAKE = _CAPS + _SCRIPTS.joinpath("claim.lua").read_text(encoding="utf-8")
_TAKE_SHA = hashlib.sha1(_TAKE.encode(), usedforsecurity=False).hexdigest()
_UPDATE = _CAPS + _SCRIPTS.joinpath("update_claims.lua").read_text(encoding="utf-8")

# One of these for each request. 0: granted. A number: the `detected_at` (epoch ms) of a claim that
# denies it, one not later than the request, if there is one. (A later claim may belong to a record
# that will be delivered again, so it must be requested again then.) A list: a cap denies it, and
# detections after the first time (epoch ms) and before the second too; the third is 1 if a place
# may be given back before then.
Answer = int | list[int]


class ClaimAnswers(NamedTuple):
    """The answers to requests: `forbidden_by` has those of each device.

    `read` has the newest claims of the devices that were to be read, as `detected_at` by campaign,
    from before the requests. A device with very many claims is left out; so is one whose call has
    read many of other devices already, and may be read with its next request.
    """

    forbidden_by: list[list[Answer]]
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

    async def take(self, devices: Sequence[DeviceRequests], now: float) -> ClaimAnswers:
        """Take claims at `now` (epoch s), those of each device in order."""
        answers = ClaimAnswers([[] for _ in devices], {})
        calls = calls_of_requests(devices, self._prefix, clustered=self._clustered)
        fixed, times = ("EVALSHA", _TAKE_SHA, 1), (round(now * 1000), self._retain_ms)
        # One argument has all requests, because that is packed at once.
        commands = [[*fixed, each.key, *times, b"".join(each.parts)] for each in calls]
        async with asyncio.timeout(self._deadline):
            replies = await self._call_scripts(commands)
        granted = denied = 0
        for call, reply in zip(calls, replies, strict=True):
            end = call.sort(reply, answers)
            free = reply[:end].count(0)
            granted, denied = granted + free, denied + end - free
        self._granted.inc(granted)
        self._denied.inc(denied)
        return answers

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
        if len(commands) == 1:
            return [await self._redis.execute_command(*commands[0])]
        pipeline: Any = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[list[Any]] = await pipeline.execute()
        return replies


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
_PLACE = Struct(">8s6sc")  # of a company's caps: owner, detected_at (ms), flag (scripts/caps.lua)


class ClaimReader:
    """Reads claims. `deadline` in seconds."""

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = prefix.encode()
        self._deadline = deadline

    async def history(self, device: DeviceKey, campaign_ids: Collection[int]) -> DeviceHistory:
        """The device's newest claims on these campaigns, what the caps of the company count, and
        the time zone in the copy of the catalog's record, while there is one.

        Raises RedisError, OSError or TimeoutError.
        """
        fields = [places_field(device.company_id), *map(str, campaign_ids)]
        pipeline: Any = self._redis.pipeline(transaction=False)
        for field in fields:
            pipeline.hget(claims_key(self._prefix, device.udid), field)
        async with asyncio.timeout(self._deadline):
            places, *values = await pipeline.execute()
            copy = await self._redis.get(copy_key(self._prefix.decode(), device))
        record = None if copy is None else decode_copy(copy).record
        found = zip(campaign_ids, values, strict=True)
        times = [int.from_bytes(at) for _, at, _ in _PLACE.iter_unpack((places or b"")[_DIGITS:])]
        return DeviceHistory(
            {number: _newest(value) for number, value in found if value},
            tuple(at / 1000 for at in times),
            None if record is None else record.time_zone,
        )


def _newest(grants: bytes) -> HeldClaim:
    last = grants[-_ENTRY:]
    return HeldClaim(str(uuid.UUID(bytes=last[:_OWNER])), int(last[_OWNER:]) / 1000)
