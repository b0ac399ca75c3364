"""Decisions, counted by campaign, local hour and reason."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from engine.cli.replay.catalogs import campaign_clock, venue_clock
from engine.trigger.beacon_cache import IndexedBeacon
from rules.decision import Decision
from rules.local_time import LocalClock, zone_clock
from rules.model import Reason

_HOUR = 3600
_MOST_CELLS = 100_000
_NOWHERE = zone_clock("UTC")

# Decisions are shared between detections, so few cells are different. A quarter of an hour lies
# within one hour of every time zone that is in use.
_Decided = tuple[IndexedBeacon | None, Decision, float]


class TallyCell(msgspec.Struct, eq=False, gc=False):
    """How many detections came to one decision at one beacon within a quarter of an hour."""

    count: int = 0


class LocalHour(NamedTuple):
    """An hour of a wall clock. `wall` is its beginning in seconds since 1970-01-01 00:00 as if the
    clock were in UTC, `offset` that from UTC in seconds. A repeated hour has two offsets.
    """

    wall: int
    offset: int


class TallyKey(NamedTuple):
    """What is counted together. Where there is no campaign at the beacon, its venue; neither where
    the beacon is not known."""

    campaign_id: int | None
    venue_id: int | None
    hour: LocalHour
    reason: Reason


class Tally:
    """`counts` has decisions of campaigns, `detections` each detection once, by the furthest check
    that any campaign reached, as the metric detections_total has it. Call `fold` before reading."""

    def __init__(self) -> None:
        self.counts: Counter[TallyKey] = Counter()
        self.detections: Counter[Reason] = Counter()
        self._cells: dict[_Decided, TallyCell] = {}

    @property
    def is_full(self) -> bool:
        """Whether there are as many cells as memory is meant for."""
        return len(self._cells) > _MOST_CELLS

    def cell(self, beacon: IndexedBeacon | None, decision: Decision, quarter: float) -> TallyCell:
        """Where to count a decision, until the cells are forgotten."""
        decided = (beacon, decision, quarter)
        cell = self._cells.get(decided)
        if cell is None:
            cell = self._cells[decided] = TallyCell()
        return cell

    def fold(self) -> None:
        """Multiply what is counted by decision out into campaigns."""
        for (beacon, decision, quarter), cell in self._cells.items():
            if not cell.count:
                continue
            self.detections[decision.reason] += cell.count
            instant = int(quarter) * (_HOUR // 4)
            for key in _keys(beacon, decision, instant):
                self.counts[key] += cell.count
            cell.count = 0

    def forget_cells(self) -> None:
        """Fold them, and begin with new ones. What is counted in an old one is lost."""
        self.fold()
        self._cells.clear()


def _keys(beacon: IndexedBeacon | None, decision: Decision, instant: int) -> Iterator[TallyKey]:
    """One for each campaign of the beacon, with its reason: its own, or the whole detection's."""
    if beacon is None:
        yield TallyKey(None, None, local_hour(_NOWHERE, instant), decision.reason)
    elif not beacon.campaigns:
        venue = beacon.target.venue
        yield TallyKey(None, venue.id, local_hour(venue_clock(venue), instant), decision.reason)
    else:
        reasons = dict(decision.by_campaign())
        for campaign in beacon.campaigns:
            hour = local_hour(campaign_clock(campaign), instant)
            yield TallyKey(campaign.id, None, hour, reasons.get(campaign.id, decision.reason))


def local_hour(clock: LocalClock, instant: int) -> LocalHour:
    """The hour of a wall clock in which an instant (epoch s) lies."""
    offset = clock.stretch_at(instant).offset
    wall = instant + offset
    return LocalHour(wall - wall % _HOUR, offset)
