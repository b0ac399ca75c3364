"""A decision about a device, in the form in which it is stored for people."""

import msgspec

from rules.model import Zone


class StoredDecision(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of a detection at `detected_at`, decided at `decided_at` (epoch seconds).

    `reason` is the value of a Reason. `campaigns` has the ids of campaigns by their reason. It is
    empty if the detection was refused before any campaign was checked.
    """

    detected_at: float
    decided_at: float
    beacon: int
    zone: Zone
    reason: str
    campaigns: dict[str, list[int]]
