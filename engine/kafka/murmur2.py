"""The hash of Java's partitioner: clients that use it put a device on the same partition.

aiokafka computes it byte by byte, and no maintained package has this variant (32 bits, version 2).
"""

from functools import lru_cache
from struct import Struct

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=1024)
def _words(count: int) -> Struct:
    return Struct(f"<{count}I")


def murmur2(data: bytes) -> int:
    """The hash of a key, 32 bits."""
    length = len(data)
    whole = length >> 2
    hashed = _SEED ^ length
    for word in _words(whole).unpack_from(data):
        mixed = word * _FACTOR & _MASK
        hashed = (hashed * _FACTOR ^ (mixed ^ mixed >> 24) * _FACTOR) & _MASK
    if length & 3:
        rest = int.from_bytes(data[whole << 2 :], "little")
        hashed = (hashed ^ rest) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15
