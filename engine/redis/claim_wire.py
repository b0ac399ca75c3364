"""Encodes claims for Redis: requests and updates, their keys, and the script calls."""

from collections.abc import Container, Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from catalog.chunks import chunked

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
    `delay` seconds. From now on the claim denies others for `keep` seconds; 0 gives it back.
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
        # At fixed width: Redis reads few long arguments faster than many short ones.
        at_ms = round(detected_at * 1000)
        packed[udid].append(_REQUEST.pack(campaign_id, owner, at_ms, delay * 1000))
    return [DeviceRequests(udid, positions[udid], b"".join(packed[udid])) for udid in positions]


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
