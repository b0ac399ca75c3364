"""Converts a decision for people: the detection, and the outcome of each campaign."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.grants import Grant
from rules.model import Reason
from rules.outcome import Decision
from rules.stored_decision import StoredDecision

# The reasons of decisions that check no campaign; beacons share such decisions.
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
    """Receives the outcomes of detections, a batch at a time.

    Its methods neither wait nor raise, because the pipeline calls them. `run` is its background
    task, named `name`.
    """

    name: str

    async def run(self) -> None:
        """Run until cancelled."""

    def wants(self, count: int, /) -> bool:
        """Whether it needs to see all of so many detections now.

        Otherwise it may receive a part of them, and of the others only the decisions.
        """

    def note_undecoded(self, decisions: Sequence[Decision]) -> None:
        """Receive the decisions of detections that fire nothing and were not decoded."""

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: Mapping[BeaconKey, IndexedBeacon | None],
    ) -> None:
        """Receive detections that fire nothing, each with its decision."""

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Receive grants: `claimed` hold a claim or need none, `denied` were denied one."""


class DecidedDetection(NamedTuple):
    """A detection, its decision, and the claims of the campaigns that the decision grants.

    `beacon` is None if the index does not have it. The campaigns `held` have their claim; `denied`
    counts the campaigns without one.
    """

    detection: DecodedDetection
    beacon: IndexedBeacon | None
    decision: Decision
    held: Sequence[int] = ()
    denied: int = 0

    @property
    def reason(self) -> Reason:
        """The reason that the metrics count."""
        return Reason.THROTTLED if self.denied and not self.held else self.decision.reason

    def record(self, beacon: IndexedBeacon, now: float) -> StoredDecision:
        """The decision as it is stored; it was made at `now` (epoch s)."""
        detection, number = self.detection, beacon.reference.id
        reason, outcomes = self.reason.value, self.outcomes()
        return StoredDecision(detection.detected_at, now, number, detection.zone, reason, outcomes)

    def outcomes(self) -> dict[str, list[int]]:
        """A bounded number of campaign ids by reason; those that fired come first.

        Empty if the detection was refused before its campaigns were checked.
        """
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
    """The detections of grants, each with its claimed and denied campaigns together."""
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
    """The position of the grant's detection; a record may hold several (docs/decisions/0077)."""
    detection = grant[0].detection
    return detection.record.offset, detection.index
