"""Decides detections against one catalog, each at its own time: the trigger's steps, in memory.

Resolve looks in the whole catalog. Decide is `rules.decision.decide`, as in the trigger. Claims are
all in memory, so everything that `decide` grants holds its claim. (In the trigger, Redis has the
claims, and the process remembers some of them.)

Most devices stay where they are. A decision that grants nothing is valid for the device's next
detections too, until a time that is known when the decision is made (docs/decisions/0095).
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from engine.cli.replay.catalogs import ReplayedCatalog
from engine.cli.replay.tally import Tally, TallyCell
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.decision_record import SHARED
from engine.trigger.grants import Grant, grants_of
from rules.decision import decide
from rules.model import Reason, Zone
from rules.outcome import Decision

_QUARTER = 900  # seconds
_MOST_REUSABLE = 100_000  # devices
_OF_ITS_AGE = (Reason.STALE, Reason.FUTURE)


class _ReusableDecision(msgspec.Struct, gc=False):
    """A decision that is valid for a device's detections of one beacon and zone.

    It grants nothing from `since` up to, not including, `until`; `cell` counts the detections.
    """

    key: BeaconKey
    zone: Zone
    since: float
    until: float
    cell: TallyCell


class CatalogReplay:
    """Decides detections in the given order. `reached` has the devices of each campaign.

    `max_age` is in seconds, and so is `shift`, by which the times of detections were moved. The age
    of a detection is the delay of its record, because the trigger would have decided it on arrival.
    A detection from a file has no record, and is never stale or in the future.
    """

    def __init__(self, catalog: ReplayedCatalog, *, max_age: float, shift: float = 0.0) -> None:
        self.catalog = catalog
        self.tally = Tally()
        self.reached: defaultdict[int, set[str]] = defaultdict(set)
        self.sent = 0
        self._max_age = max_age
        self._shift = shift
        # Not bounded, because a forgotten claim would be granted again.
        self._remembered = ClaimMemory(sys.maxsize).for_assignment()
        self._reusable: dict[str, _ReusableDecision] = {}

    def decide(self, detections: Iterable[DecodedDetection], *, counted: bool) -> list[Grant]:
        """Decide detections and take the claims of the grants. Returns the grants and counts all
        decisions.

        Detections of the warm-up are not `counted`: they take claims, but nothing is returned.
        """
        reusable_of, max_age, shift = self._reusable.get, self._max_age, self._shift
        count, granting = int(counted), list[Grant]()
        for detection in detections:
            at, arrived_at = detection.detected_at, detection.record.timestamp
            now = (
                at if arrived_at < 0 else arrived_at / 1000 + shift
            )  # in a file NaN: never too old
            reusable = reusable_of(detection.message.device.udid)
            if (
                reusable is not None
                and reusable.since <= at < reusable.until
                and reusable.key is detection.key
                and reusable.zone is detection.zone
                and not (at < now - max_age or at > now + max_age)
            ):
                reusable.cell.count += count
            else:
                granting += self._decide_fresh(detection, now, count)
        self._make_room()
        if not counted:
            return []
        self.sent += len(granting)
        for grant in granting:
            self.reached[grant.campaign.id].add(grant.udid)
        return granting

    def _decide_fresh(self, detection: DecodedDetection, now: float, count: int) -> list[Grant]:
        udid, at = detection.message.device.udid, detection.detected_at
        beacon = self.catalog.beacons.get(detection.key)
        target = None if beacon is None else beacon.target
        held = self._remembered.of(udid)
        decision = decide(target, detection.zone, at, now, self._max_age, held)
        quarter = at // _QUARTER
        cell = self.tally.cell(beacon, decision, quarter)
        cell.count += count
        if decision.granted and beacon is not None:
            self._reusable.pop(udid, None)
            grants = grants_of(detection, beacon, decision)
            self._claim(grants)
            return grants
        since, until = _period_of(beacon, decision, at, held)
        since, until = max(since, quarter * _QUARTER), min(until, (quarter + 1) * _QUARTER)
        self._reusable[udid] = _ReusableDecision(detection.key, detection.zone, since, until, cell)
        return []

    def _make_room(self) -> None:
        """Forget remembered decisions, and the cells that count them, before they are too many."""
        if self.tally.is_full or len(self._reusable) > _MOST_REUSABLE:
            self._reusable.clear()
            self.tally.forget_cells()

    def _claim(self, grants: Iterable[Grant]) -> None:
        for grant in grants:
            if grant.campaign.delay > 0:
                at = grant.detection.detected_at
                self._remembered.remember(grant.udid, grant.campaign.id, at)


def _period_of(
    beacon: IndexedBeacon | None, decision: Decision, at: float, held: Mapping[int, float]
) -> tuple[float, float]:
    """The period in which a decision that grants nothing is valid.

    In it every detection of the same device, beacon and zone gets the same decision, unless it is
    stale or in the future. Only grants take claims, so the claims do not change in it.
    """
    if decision.reason in _OF_ITS_AGE:
        return at, at
    if beacon is None or decision.reason in SHARED:
        return -inf, inf
    phase = beacon.target.phase_at(at)
    return phase.since, min(phase.until, phase.throttled_until(held))
