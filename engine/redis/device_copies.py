"""Copies of what SQL knows of devices, and how long they are believed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

FRESH_SECONDS = 4.0
_MOST_REMEMBERED = 20_000  # devices of each of two generations


class DeviceKey(NamedTuple):
    """A device is one company's."""

    company_id: int
    udid: str


class DeviceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A device's record, as far as notifications and calls need it."""

    id: int | None
    id_connector: int | None
    test: bool
    token_push: str | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None


NO_ANSWER = DeviceRecord(None, None, False)


class DeviceCopy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record as SQL had it at `read_at` (epoch s); None: SQL had none."""

    read_at: float
    record: DeviceRecord | None


encode_copy = msgspec.json.Encoder().encode
decode_copy = msgspec.json.Decoder(DeviceCopy).decode


class RecentCopies:
    """What was read in the last seconds, so that a device that is sent several campaigns is read
    once. A copy is as old as the reading of SQL behind it."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._young: dict[DeviceKey, DeviceCopy] = {}
        self._old: dict[DeviceKey, DeviceCopy] = {}

    def fresh(self, keys: Iterable[DeviceKey], now: float) -> dict[DeviceKey, DeviceRecord | None]:
        """The records of those that are remembered and fresh."""
        if not 0 <= now - self._since < FRESH_SECONDS or len(self._young) > _MOST_REMEMBERED:
            self._old, self._young, self._since = self._young, {}, now
        found: dict[DeviceKey, DeviceRecord | None] = {}
        for key in keys:
            copy = self._young.get(key) or self._old.get(key)
            if copy is not None and is_fresh(copy, now):
                found[key] = copy.record
        return found

    def remember(self, copies: Mapping[DeviceKey, DeviceCopy]) -> None:
        """What was just read."""
        self._young.update(copies)


def is_fresh(copy: DeviceCopy, now: float) -> bool:
    """A copy from the future was written by a clock that is ahead: its age is not known."""
    return 0 <= now - copy.read_at < FRESH_SECONDS
