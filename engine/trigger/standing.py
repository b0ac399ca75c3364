"""A decision that still holds while a throttled device stays at a beacon (decision 0121)."""

from collections.abc import Mapping

import msgspec

from rules.decision import Phase
from rules.model import Zone


class StandingDecision(msgspec.Struct, frozen=True, gc=False):
    """A decision that throttles all open campaigns of a beacon, and is still valid for the next
    detections of the device in the same zone.

    `decide` would return the phase's `none_granted` for each detection from the beginning of the
    phase up to, not including, `until` (epoch s). This holds while the device still has the claims
    that the decision was made from; more claims change nothing. A stale or future detection is
    refused whatever the claims are, so `decider` compares the age of each detection.

    `phase` is the mark of the phase, not the phase itself. So a standing decision keeps no beacon
    in memory that was edited or that the cache has evicted.
    """

    phase: object
    zone: Zone
    until: float


def standing_decision(phase: Phase, zone: Zone, held: Mapping[int, float]) -> StandingDecision:
    """The standing decision for a device whose claims `held` throttle all open campaigns of the
    phase."""
    return StandingDecision(phase.mark, zone, min(phase.until, phase.throttled_until(held)))
