"""Copies of SQL's records of devices, and how long a copy is fresh."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

FRESH_SECONDS = 4.0
_MOST_REMEMBERED = 20_000  # devices of each of two generations


class DeviceKey(NamedTuple):
    """A company and the udid of a device there."""

    company_id: int
    udid: str


class DeviceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fields of a device's record that notifications and calls need."""

    id: int | None
    id_connector: int | None
    test: bool
    token_push: str | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None


NO_ANSWER = DeviceRecord(None, None, False)


class DeviceCopy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record as SQL had it at `read_at` (epoch s); None if SQL had no record."""

    read_at: float
    record: DeviceRecord | None


encode_copy = msgspec.json.Encoder().encode
decode_copy = msgspec.json.Decoder(DeviceCopy).decode


class RecentCopies:
    """The copies that were read in the last seconds.

    A device that is sent several campaigns is read once. The age of a copy counts from the time at
    which SQL was read.
    """

    def __init__(self) -> None:
        self._since = float("-inf")
        self._young: dict[DeviceKey, DeviceCopy] = {}
        self._old: dict[DeviceKey, DeviceCopy] = {}

    def fresh(self, keys: Iterable[DeviceKey], now: float) -> dict[DeviceKey, DeviceRecord | None]:
        """The records of the remembered keys whose copies are fresh."""
        if not 0 <= now - self._since < FRESH_SECONDS or len(self._young) > _MOST_REMEMBERED:
            self._old, self._young, self._since = self._young, {}, now
        found: dict[DeviceKey, DeviceRecord | None] = {}
        for key in keys:
            copy = self._young.get(key) or self._old.get(key)
            if copy is not None and is_fresh(copy, now):
                found[key] = copy.record
        return found

    def remember(self, copies: Mapping[DeviceKey, DeviceCopy]) -> None:
        """Add copies that were just read."""
        self._young.update(copies)


def is_fresh(copy: DeviceCopy, now: float) -> bool:
    """Whether the copy is fresh. A copy from the future is not: a wrong clock wrote it."""
    return 0 <= now - copy.read_at < FRESH_SECONDS
