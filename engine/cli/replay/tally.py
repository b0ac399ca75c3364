"""Counts decisions by campaign, local hour and reason."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from engine.cli.replay.catalogs import campaign_clock, venue_clock
from engine.trigger.beacon_cache import IndexedBeacon
from rules.local_time import LocalClock, zone_clock
from rules.model import Reason
from rules.outcome import Decision

_HOUR = 3600
_MOST_CELLS = 100_000
_NOWHERE = zone_clock("UTC")

# Many detections share a decision, so there are few different cells. A quarter of an hour lies
# within one hour of every time zone that is in use.
_Decided = tuple[IndexedBeacon | None, Decision, float]


class TallyCell(msgspec.Struct, eq=False, gc=False):
    """The number of detections with one decision at one beacon within a quarter of an hour."""

    count: int = 0


class LocalHour(NamedTuple):
    """An hour of local time.

    `wall` is its beginning, in seconds since 1970-01-01 00:00 local time. `offset` is the offset
    from UTC in seconds: an hour that a clock change repeats has two.
    """

    wall: int
    offset: int


class TallyKey(NamedTuple):
    """The key under which detections are counted together.

    Without a campaign at the beacon it has the venue; for an unknown beacon it has neither.
    """

    campaign_id: int | None
    venue_id: int | None
    hour: LocalHour
    reason: Reason


class Tally:
    """Counts decisions. Call `fold` before reading the counts.

    `counts` has the decisions of campaigns. `detections` counts each detection once, by the
    furthest check that any campaign reached, as the metric detections_total does.
    """

    def __init__(self) -> None:
        self.counts: Counter[TallyKey] = Counter()
        self.detections: Counter[Reason] = Counter()
        self._cells: dict[_Decided, TallyCell] = {}

    @property
    def is_full(self) -> bool:
        """Whether the number of cells has reached the limit."""
        return len(self._cells) > _MOST_CELLS

    def cell(self, beacon: IndexedBeacon | None, decision: Decision, quarter: float) -> TallyCell:
        """The cell in which to count a decision, until the cells are forgotten."""
        decided = (beacon, decision, quarter)
        cell = self._cells.get(decided)
        if cell is None:
            cell = self._cells[decided] = TallyCell()
        return cell

    def fold(self) -> None:
        """Add the counts of the cells to the counts of campaigns."""
        for (beacon, decision, quarter), cell in self._cells.items():
            if not cell.count:
                continue
            self.detections[decision.reason] += cell.count
            instant = int(quarter) * (_HOUR // 4)
            for key in _keys(beacon, decision, instant):
                self.counts[key] += cell.count
            cell.count = 0

    def forget_cells(self) -> None:
        """Fold the cells and begin with new ones. A later count in an old cell is lost."""
        self.fold()
        self._cells.clear()


def _keys(beacon: IndexedBeacon | None, decision: Decision, instant: int) -> Iterator[TallyKey]:
    """A key for each campaign of the beacon, with the campaign's reason or the detection's."""
    if beacon is None:
        yield TallyKey(None, None, local_hour(_NOWHERE, instant), decision.reason)
    elif not beacon.campaigns:
        venue = beacon.target.venue
        yield TallyKey(None, venue.id, local_hour(venue_clock(venue), instant), decision.reason)
    else:
        reasons = dict(decision.by_campaign)
        for campaign in beacon.campaigns:
            hour = local_hour(campaign_clock(campaign), instant)
            yield TallyKey(campaign.id, None, hour, reasons.get(campaign.id, decision.reason))


def local_hour(clock: LocalClock, instant: int) -> LocalHour:
    """The hour of local time that contains an instant (epoch s)."""
    offset = clock.stretch_at(instant).offset
    wall = instant + offset
    return LocalHour(wall - wall % _HOUR, offset)
