"""Finds the iBeacon frame in the bytes of a Bluetooth advertisement.

An advertisement is a sequence of structures of length, type and data. See the Bluetooth Core
Specification, supplement, part A, and Apple's "Proximity Beacon Specification".
"""

from typing import NamedTuple

_MANUFACTURER = 0xFF
_PREFIX = bytes.fromhex("4c000215")  # Apple, iBeacon, 21 bytes follow
_LENGTH = 25


class IBeaconFrame(NamedTuple):
    """The content of an iBeacon frame; `tx_power` in dBm at one metre."""

    uuid: str
    major: int
    minor: int
    tx_power: int


def ibeacon_frame(advertisement: bytes) -> IBeaconFrame | None:
    """The iBeacon frame of an advertisement, or None, also for an advertisement that is cut off."""
    at = 0
    while at < len(advertisement):
        end = at + 1 + advertisement[at]
        data = advertisement[at + 2 : end]
        if end > len(advertisement) or end == at + 1:
            return None  # cut off, or padded with zeros
        if advertisement[at + 1] == _MANUFACTURER and data[:4] == _PREFIX and len(data) == _LENGTH:
            return IBeaconFrame(
                data[4:20].hex(),
                int.from_bytes(data[20:22]),
                int.from_bytes(data[22:24]),
                int.from_bytes(data[24:25], signed=True),
            )
        at = end
    return None
