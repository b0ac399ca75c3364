"""What is remembered of a decision while a device stays at a beacon and is throttled."""

from collections.abc import Mapping

import msgspec

from rules.decision import Phase
from rules.model import Zone


class StandingDecision(msgspec.Struct, frozen=True, gc=False):
    """`decide` returns the phase's `none_granted` for each detection of the device in this zone,
    from the beginning of the phase up to, not including, `until` (epoch s): as long as the device
    has the claims that this was made from, and others or not, and but for what is stale or of the
    future.

    `phase` is the mark of the phase, and not the phase: a beacon that was edited, or that found no
    room in the cache, is kept by nobody (docs/decisions/0121).
    """

    phase: object
    zone: Zone
    until: float


def standing_decision(phase: Phase, zone: Zone, held: Mapping[int, float]) -> StandingDecision:
    """Of a decision in this phase that throttles all that is open, by the claims `held`."""
    return StandingDecision(phase.mark, zone, min(phase.until, phase.throttled_until(held)))
