"""Detections decided against one catalog, in their own time: the trigger's steps, in memory.

Resolve looks into the whole catalog. Decide is `rules.decision.decide`, as live. Claims: all that
this replay has granted is known, so what `decide` grants has its claim. (Live, Redis knows, and the
process remembers a part of it.)
"""

import sys
from collections import defaultdict
from collections.abc import Iterable

from engine.cli.replay.catalogs import ReplayedCatalog
from engine.cli.replay.tally import Decided, Tally
from engine.kafka.detections import DecodedDetection
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.grants import Grant, grants_of
from rules.decision import decide

_QUARTER = 900  # seconds


class CatalogReplay:
    """Decides detections in the order in which they are given. `max_age` and `shift`, by which
    their times were moved, in seconds.

    A detection is as old as its record was late: live, it would have been decided when it came.
    One from a file has no record, and is never stale nor of the future. `reached` has the devices
    of each campaign.
    """

    def __init__(self, catalog: ReplayedCatalog, *, max_age: float, shift: float = 0.0) -> None:
        self.catalog = catalog
        self.tally = Tally()
        self.reached: defaultdict[int, set[str]] = defaultdict(set)
        self.sent = 0
        self._max_age = max_age
        self._shift = shift
        # Without a bound: what were forgotten would be granted again.
        self._remembered = ClaimMemory(sys.maxsize).for_assignment()

    def decide(self, detections: Iterable[DecodedDetection], *, counted: bool) -> list[Grant]:
        """Decide, and take the claims of what is granted. Returns it, and counts all decisions;
        or does neither where it is not `counted` (the time before the one that is asked for)."""
        known, claims_of = self.catalog.beacons, self._remembered.of
        max_age, shift = self._max_age, self._shift
        decided, granting = list[Decided](), list[Grant]()
        for detection in detections:
            beacon = known.get(detection.key)
            at = detection.detected_at
            came = detection.record.timestamp  # not a number in a file, so nothing is too old
            now = at if came < 0 else came / 1000 + shift
            decision = decide(
                None if beacon is None else beacon.target,
                detection.zone,
                at,
                now,
                max_age,
                claims_of(detection.message.device.udid),
            )
            decided.append((beacon, decision, at // _QUARTER))
            if decision.granted and beacon is not None:
                grants = list(grants_of(detection, beacon, decision))
                self._claim(grants)
                granting += grants
        if not counted:
            return []
        self.tally.add(decided)
        self.sent += len(granting)
        for grant in granting:
            self.reached[grant.campaign.id].add(grant.udid)
        return granting

    def _claim(self, grants: Iterable[Grant]) -> None:
        for grant in grants:
            if grant.campaign.delay > 0:
                at = grant.detection.detected_at
                self._remembered.remember(grant.udid, grant.campaign.id, at)
