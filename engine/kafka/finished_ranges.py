"""Ranges of finished offsets as text that fits beside a committed offset. Pure."""

import base64
from bisect import bisect_right
from collections.abc import Iterator, Sequence

# The brokers' offset.metadata.max.bytes is 4096, and the topic's id stands beside.
MOST_CHARACTERS = 3900


class FinishedRanges:
    """Offsets that are finished, in ascending ranges."""

    def __init__(self, ranges: Sequence[range] = ()) -> None:
        self._ranges = ranges
        self._begins = [each.start for each in ranges]

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        at = bisect_right(self._begins, offset) - 1
        return at >= 0 and offset in self._ranges[at]

    def beyond(self, end: int) -> list[range]:
        """What of them lies behind `end`."""
        return [range(max(each.start, end), each.stop) for each in self._ranges if each.stop > end]

    def text(self) -> str:
        """Distances and lengths in turn, seven bits a byte, in base64."""
        raw, position = bytearray(), 0
        for each in self._ranges:
            for number in (each.start - position, len(each)):
                while number >= 0x80:
                    raw.append(number & 0x7F | 0x80)
                    number >>= 7
                raw.append(number)
            position = each.stop
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "FinishedRanges":
        """What `text` gave; empty for what nobody here has written."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return cls()
        numbers = list(_numbers(raw))
        if len(numbers) % 2:
            return cls()
        ranges, position = [], 0
        for distance, length in zip(numbers[::2], numbers[1::2], strict=True):
            ranges.append(range(position + distance, position + distance + length))
            position += distance + length
        return cls(ranges)


def _numbers(raw: bytes) -> Iterator[int]:
    number, shift = 0, 0
    for byte in raw:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield number
            number, shift = 0, 0
