"""Compares two catalogs: the notifications that only one of them sends."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from engine.cli.replay.catalogs import campaign_clock
from engine.cli.replay.decisions import CatalogReplay
from engine.cli.replay.tally import LocalHour, local_hour
from engine.trigger.grants import Grant

_Sent = tuple[int, object]


class SentHour(NamedTuple):
    """A campaign's id in its own catalog, and an hour."""

    campaign_id: int
    hour: LocalHour


class CatalogComparison:
    """Compares the grants of two replays, detection by detection.

    `only` has, for each of the two, the grants that the other does not have.
    """

    def __init__(self, first: CatalogReplay, second: CatalogReplay) -> None:
        self.only: tuple[Counter[SentHour], Counter[SentHour]] = (Counter(), Counter())
        self._replays = (first, second)

    def note(self, first: Iterable[Grant], second: Iterable[Grant]) -> tuple[set[int], set[int]]:
        """The grants of both for the same detections. Returns the positions of those that the
        other does not have."""
        known = [self._keyed(number, each) for number, each in enumerate((first, second))]
        positions: tuple[set[int], set[int]] = (set(), set())
        for number, (mine, others) in enumerate(((known[0], known[1]), (known[1], known[0]))):
            for key in mine.keys() - others.keys():
                position, grant = mine[key]
                positions[number].add(position)
                hour = local_hour(campaign_clock(grant.campaign), int(grant.detection.detected_at))
                self.only[number][SentHour(grant.campaign.id, hour)] += 1
        return positions

    def _keyed(self, number: int, grants: Iterable[Grant]) -> dict[_Sent, tuple[int, Grant]]:
        campaigns = self._replays[number].catalog.campaigns
        return {
            (id(grant.detection), campaigns[grant.campaign.id].key): (position, grant)
            for position, grant in enumerate(grants)
        }

    def devices_only(self, number: int) -> dict[int, int]:
        """By campaign id, the number of devices that a campaign reaches in only one replay."""
        mine, other = self._replays[number], self._replays[1 - number]
        ids = {campaign.key: id_ for id_, campaign in other.catalog.campaigns.items()}
        found = {}
        for id_, devices in mine.reached.items():
            same = ids.get(mine.catalog.campaigns[id_].key, -1)  # of no campaign
            found[id_] = len(devices - other.reached[same] if same in other.reached else devices)
        return found
