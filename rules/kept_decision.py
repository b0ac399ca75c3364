"""A decision as it is kept for people who ask what happened to a device."""

import msgspec

from rules.model import Zone


class KeptDecision(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a detection at `detected_at`, decided at `decided_at` (epoch seconds).

    `reason` is the value of a Reason. `campaigns` has ids by the reason that each of them met; it
    is empty for a detection that was refused before any campaign was looked at.
    """

    detected_at: float
    decided_at: float
    beacon: int
    zone: Zone
    reason: str
    campaigns: dict[str, list[int]]
