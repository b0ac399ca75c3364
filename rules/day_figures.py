"""What became of one company's detections on one day, added up."""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from rules.model import Reason


class CampaignReason(NamedTuple):
    """What is added up by campaign."""

    campaign_id: int
    reason: Reason


class DayFigures(msgspec.Struct, eq=True):
    """Sums of a day, in UTC. Counts are of decisions, so what is decided again is in them again.

    `detections` (of active beacons) and `notifications` are by hour, 0 to 23. `reasons` has one for
    each campaign that was checked, and one for a detection that was refused before that.
    """

    detections: Counter[int] = msgspec.field(default_factory=Counter)
    notifications: Counter[int] = msgspec.field(default_factory=Counter)
    reasons: Counter[Reason] = msgspec.field(default_factory=Counter)
    campaigns: Counter[CampaignReason] = msgspec.field(default_factory=Counter)

    @property
    def size(self) -> int:
        """How many sums there are."""
        return sum(len(sums) for sums in self._all())

    def _all(self) -> Collection[Counter[int] | Counter[Reason] | Counter[CampaignReason]]:
        return self.detections, self.notifications, self.reasons, self.campaigns
