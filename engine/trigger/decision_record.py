"""What a decision comes to for people: a record of a detection, each campaign with its outcome."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.grants import Grant
from rules.model import Reason
from rules.outcome import Decision
from rules.stored_decision import StoredDecision

# What became of a detection before any campaign was looked at: beacons share these decisions.
SHARED = frozenset(
    {
        Reason.UNKNOWN_BEACON,
        Reason.INACTIVE_VENUE,
        Reason.INACTIVE_BEACON,
        Reason.NO_CAMPAIGN,
        Reason.UNKNOWN_PROXIMITY,
        Reason.TOO_FAR,
        Reason.STALE,
        Reason.FUTURE,
    }
)
_MOST_CAMPAIGNS = 50  # in one record


class DecisionWatcher(Protocol):
    """Receives the outcome of each detection, a batch at a time, and neither waits nor raises.

    `run` is its background task, named `name`.
    """

    name: str

    async def run(self) -> None:
        """Until cancelled."""

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: Mapping[BeaconKey, IndexedBeacon | None],
    ) -> None:
        """Detections that fire nothing, each with its decision."""

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Grants that hold their claim or need none, and those that were denied one."""


class DecidedDetection(NamedTuple):
    """A detection and its decision; `beacon` is None where the index has none. Of what the decision
    grants, the campaigns `held` have their claim, and so many were `denied` one."""

    detection: DecodedDetection
    beacon: IndexedBeacon | None
    decision: Decision
    held: Sequence[int] = ()
    denied: int = 0

    @property
    def reason(self) -> Reason:
        """As the metrics count it."""
        return Reason.THROTTLED if self.denied and not self.held else self.decision.reason

    def record(self, beacon: IndexedBeacon, now: float) -> StoredDecision:
        """What it comes to at its beacon; decided at `now` (epoch s)."""
        detection, number = self.detection, beacon.reference.id
        reason, outcomes = self.reason.value, self.outcomes()
        return StoredDecision(detection.detected_at, now, number, detection.zone, reason, outcomes)

    def outcomes(self) -> dict[str, list[int]]:
        """Campaigns by what became of each: those that fired first, and a bounded number. None of a
        detection that was refused before its campaigns were looked at."""
        if self.beacon is None or self.reason in SHARED:
            return {}
        phase = self.beacon.target.phase_at(self.detection.detected_at)
        throttled = [each.id for each in phase.open if each.id not in self.held]
        listed: dict[Reason, Sequence[int]] = {
            Reason.GRANTED: self.held,
            Reason.THROTTLED: throttled,
            **phase.closed_campaigns,
        }
        found: dict[str, list[int]] = {}
        room = _MOST_CAMPAIGNS
        for reason, numbers in listed.items():
            if numbers and room:
                found[reason.value] = list(numbers[:room])
                room -= len(found[reason.value])
        return found


def decided_by_claims(
    claimed: Iterable[Grant], denied: Iterable[Grant]
) -> Iterator[DecidedDetection]:
    """The detections of grants that hold their claim, or need none, and of those denied one."""
    grants = [(grant, True) for grant in claimed] + [(grant, False) for grant in denied]
    grants.sort(key=_place)
    for _, group in groupby(grants, key=_place):
        of_one = list(group)
        grant, _ = of_one[0]
        held = [each.campaign.id for each, is_claimed in of_one if is_claimed]
        yield DecidedDetection(
            grant.detection, grant.beacon, grant.decision, held, len(of_one) - len(held)
        )


def _place(grant: tuple[Grant, bool]) -> tuple[int, int]:
    """The detection's, on its partition: a record may hold several (docs/decisions/0077)."""
    detection = grant[0].detection
    return detection.record.offset, detection.index
