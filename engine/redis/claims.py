"""Claims: at most one send of a campaign to a device within the campaign's delay, in Redis.

All claims of a device are under one key. The owner of a claim may give it back or shorten it, once
a customer's service has answered.

Claims compare the times of detections: a claim denies detections before its `detected_at` plus the
delay. So a backlog leads to the same notifications as live traffic, and the same records always get
the same answer.
"""

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from struct import Struct, pack
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec
from redis.asyncio import RedisCluster
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError

from catalog.bounds import chunked
from engine.process.metrics import Metrics
from engine.redis.devices import DeviceKey, copy_key, decode_copy
from engine.redis.store import RedisStore, readable
from rules.explanation import DeviceHistory, HeldClaim
from rules.model import Cap

TAGS = 64  # slots over which a cluster spreads devices
_MOST_READ = 32  # devices in a script call, which reads up to 4,096 claims (claim.lua)
_MOST_UPDATED = 1000
_REQUEST = Struct(">q16sqqB")
REQUEST_BYTES = _REQUEST.size
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

    def add(self, position: int, device: DeviceRequests, key: bytes) -> None:
        """Add the requests of a device with this key."""
        caps, packed = device.caps, device.packed
        size = len(packed)
        self.parts += (_DEVICE.pack(len(key), device.read, len(caps), size), key, caps, packed)
        self.positions.append((position, size // REQUEST_BYTES))
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
    """Groups requests into script calls. The devices that a call reads are bounded in number (a
    cycle of the trigger bounds the claims); on a cluster, all keys of a call are in one slot."""
    calls, open_calls = list[_Call](), dict[int, _Call]()
    for position, device in enumerate(devices):
        name = device.udid.encode()
        tag = crc32(name) % TAGS
        key, group = b"%bclaims:{%d}:%b" % (prefix, tag, name), tag if clustered else 0
        call = open_calls.get(group)
        if call is None or len(call.read) + device.read > _MOST_READ:
            call = open_calls[group] = _Call(key)
            calls.append(call)
        call.add(position, device, key)
    return calls


def claims_key(prefix: str, udid: str) -> str:
    """The key of the claims on one device."""
    return f"{prefix}claims:{{{claim_tag(udid)}}}:{udid}"


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


def update_arguments(update: ClaimUpdate) -> tuple[int | str | bytes, ...]:
    """The arguments of scripts/update_claim.lua, without the last."""
    caps, fate = update.place or (b"", "")
    at, delay, keep = round(update.detected_at * 1000), update.delay * 1000, update.keep * 1000
    return update.campaign_id, update.notification_id, at, delay, keep, fate, caps


def claim_tag(udid: str) -> int:
    """The hash tag of a device's claims, which determines their slot in a cluster."""
    return crc32(udid.encode()) % TAGS


def _script(name: str) -> str:
    return files("engine.redis").joinpath(f"scripts/{name}.lua").read_text(encoding="utf-8")


_CAPS = _script("caps")  # what the two others have in common


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


@dataclass(kw_only=True, eq=False)
class Claims(RedisStore):
    """Takes lists of claims, and changes them for their owners: in one round trip, on a single
    server and on a cluster.

    `retain` (seconds) is how long a grant is remembered beyond its delay, for records that arrive
    late or are delivered again after a crash. Raises RedisError or TimeoutError. A part may be done
    then; a repetition gets the same answers and changes nothing else.
    """

    retain: float
    metrics: Metrics

    def __post_init__(self) -> None:
        self._retain_ms = int(self.retain * 1000)
        self._clustered = isinstance(self.redis, RedisCluster)
        self._take = self.redis.register_script(_CAPS + _script("claim"))
        self._update = self.redis.register_script(_CAPS + _script("update_claim"))
        self._granted = self.metrics.claims.labels("granted")
        self._denied = self.metrics.claims.labels("denied")

    async def take(self, devices: Sequence[DeviceRequests], now: float) -> ClaimAnswers:
        """Take claims at `now` (epoch s), those of each device in order."""
        answers = ClaimAnswers([[] for _ in devices], {})
        prefix, times = self.prefix.encode(), (round(now * 1000), self._retain_ms)
        calls = calls_of_requests(devices, prefix, clustered=self._clustered)
        # One argument has all requests, because that is packed at once.
        arguments = [(each.key, *times, b"".join(each.parts)) for each in calls]
        granted = denied = 0
        for call, reply in zip(calls, await self._run(self._take, arguments), strict=True):
            end = call.sort(reply, answers)
            free = reply[:end].count(0)
            granted, denied = granted + free, denied + end - free
        self._granted.inc(granted)
        self._denied.inc(denied)
        return answers

    async def settle(self, updates: Sequence[ClaimUpdate]) -> list[bool]:
        """Give claims back, shorten or confirm them. Returns whether each changed, or, where `keep`
        is the delay, whether the owner has it.

        An owner that has lost its claim gets it again, unless another detection holds it.
        """
        settled: list[bool] = []
        for part in chunked(updates, _MOST_UPDATED):
            arguments = [
                (claims_key(self.prefix, each.udid), *update_arguments(each), self._retain_ms)
                for each in part
            ]
            settled += map(bool, await self._run(self._update, arguments))
        return settled

    async def _run(self, script: AsyncScript, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies of calls with a key and arguments, in one round trip (on a cluster one for
        each node). If the script is missing, it is loaded and all calls are sent again."""
        async with asyncio.timeout(self.deadline):
            try:
                return await self._send(script, arguments)
            except NoScriptError:
                await self.redis.script_load(script.script)
                return await self._send(script, arguments)

    async def _send(self, script: AsyncScript, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        if len(arguments) == 1:
            return [await self.redis.execute_command("EVALSHA", script.sha, 1, *arguments[0])]
        pipeline = self._pipeline()
        for each in arguments:
            pipeline.execute_command("EVALSHA", script.sha, 1, *each)
        replies: list[Any] = await pipeline.execute()
        return replies


# The lengths of an entry and its owner, as scripts/claim.lua writes them; the newest entry is last.
_OWNER = 16
_ENTRY = 30
_PLACE = Struct(">8s6sc")  # of a company's caps: owner, detected_at (ms), flag (scripts/caps.lua)


class ClaimReader(RedisStore):
    """Reads what Claims writes, for people."""

    async def history(self, device: DeviceKey, campaign_ids: Collection[int]) -> DeviceHistory:
        """The device's newest claims on these campaigns, what the caps of the company count, and
        the time zone in the copy of the catalog's record, while there is one.

        Raises RedisError, OSError or TimeoutError.
        """
        fields = [places_field(device.company_id), *map(str, campaign_ids)]
        pipeline = self._pipeline()
        for field in fields:
            pipeline.hget(claims_key(self.prefix, device.udid), field)
        places, *values = await self._answer(pipeline.execute())
        copy = await self._answer(self.redis.get(copy_key(self.prefix, device)))
        records = readable([copy] if copy else [], decode_copy)
        found = zip(campaign_ids, values, strict=True)
        times = [int.from_bytes(at) for _, at, _ in _PLACE.iter_unpack((places or b"")[_DIGITS:])]
        return DeviceHistory(
            {number: _newest(value) for number, value in found if value},
            tuple(at / 1000 for at in times),
            records[0].time_zone if records else None,
        )


def _newest(grants: bytes) -> HeldClaim:
    last = grants[-_ENTRY:]
    return HeldClaim(str(uuid.UUID(bytes=last[:_OWNER])), int(last[_OWNER:]) / 1000)
