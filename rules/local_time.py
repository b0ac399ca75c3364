"""Local wall time. The conversion always goes from the instant to the wall time.

Between two changes of a zone's UTC offset the conversion is an addition. A LocalClock finds the
stretches of constant offset, a block of time at a time, once for all campaigns of the zone.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import pairwise
from math import floor
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY = 86_400

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # wall time
_BLOCK = 32 * DAY
# No zone in the IANA data changes its offset and changes it back within less than three days.
_STEP = DAY
_MOST_BLOCKS = 64
# The first and last seconds that datetime can express, and the instants for which every offset can.
# Beyond them the nearest offset applies.
_FIRST_WALL, _LAST_WALL = -62_135_596_800, 253_402_300_799
_FIRST, _LAST = _FIRST_WALL + 2 * DAY, _LAST_WALL - 2 * DAY


class Stretch(NamedTuple):
    """Instants from `since` up to, not including, `until` with one UTC offset; all in seconds."""

    since: int
    until: int
    offset: int


class LocalClock:
    """The UTC offsets of one time zone, remembered for a bounded number of blocks."""

    __slots__ = ("_blocks", "_tz")

    def __init__(self, tz: tzinfo) -> None:
        self._tz = tz
        self._blocks: dict[int, tuple[Stretch, ...]] = {}

    def stretch_at(self, instant: int) -> Stretch:
        """A stretch of constant offset around `instant`, not always the longest one."""
        block = instant // _BLOCK
        stretches = self._blocks.get(block) or self._survey(block)
        return next(stretch for stretch in stretches if instant < stretch.until)

    def written(self, instant: float) -> str:
        """The instant in local time, with its offset: 2026-11-20T10:00:00+0100. Before year 1 and
        after year 9999 the first or the last second of them."""
        second = floor(min(max(instant, _FIRST_WALL - DAY), _LAST_WALL + DAY))
        offset = self.stretch_at(second).offset
        shown = min(max(second + offset, _FIRST_WALL), _LAST_WALL)
        wall = _EPOCH + timedelta(seconds=shown)
        sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
        return f"{wall.isoformat()}{sign}{minutes // 60:02}{minutes % 60:02}"

    def last_second_before(self, wall: int) -> int:
        """The last instant at which the wall clock shows less than `wall`.

        `wall` is in seconds since 1970-01-01 00:00 as if the wall clock were in UTC.
        """
        stretch = self.stretch_at(wall + DAY)
        while (last := min(stretch.until, wall - stretch.offset) - 1) < stretch.since:
            stretch = self.stretch_at(stretch.since - 1)
        return last

    def _survey(self, block: int) -> tuple[Stretch, ...]:
        begin = block * _BLOCK
        days = range(begin, begin + _BLOCK, _STEP)
        changes = [change for day in days for change in self._changes(day, day + _STEP)]
        edges = sorted({begin, *changes, begin + _BLOCK})
        found = tuple(Stretch(a, b, self._offset_at(a)) for a, b in pairwise(edges))
        if len(self._blocks) >= _MOST_BLOCKS:
            self._blocks.clear()
        self._blocks[block] = found
        return found

    def _changes(self, a: int, b: int) -> Iterator[int]:
        if self._offset_at(a) == self._offset_at(b):
            return
        if b - a == 1:
            yield b
            return
        middle = (a + b) // 2
        yield from self._changes(a, middle)
        yield from self._changes(middle, b)

    def _offset_at(self, instant: int) -> int:
        known = min(max(instant, _FIRST), _LAST)
        offset = datetime.fromtimestamp(known, self._tz).utcoffset()
        return 0 if offset is None else offset // timedelta(seconds=1)


@lru_cache(maxsize=1024)
def zone_clock(name: str) -> LocalClock:
    """The clock of an IANA time zone. Raises ValueError if no zone has that name."""
    try:
        return LocalClock(ZoneInfo(name))
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no IANA time zone is named {name!r}") from error


@lru_cache(maxsize=1024)
def fixed_clock(offset: timedelta) -> LocalClock:
    """The clock of a constant UTC offset."""
    return LocalClock(timezone(offset))
