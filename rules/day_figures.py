"""The outcomes of one company's detections on one day, added up."""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from rules.model import Reason


class CampaignReason(NamedTuple):
    """The key of a sum by campaign."""

    campaign_id: int
    reason: Reason


class DayFigures(msgspec.Struct, eq=True):
    """Sums of a day, in UTC. Decisions are counted, so a detection decided twice counts twice.

    `detections` (of active beacons) and `notifications` are by hour, 0 to 23. `reasons` counts each
    checked campaign, and each detection that was refused before its campaigns were checked.
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
