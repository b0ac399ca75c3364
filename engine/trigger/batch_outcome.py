"""What a batch came to, counted once it is published, in a few calls a batch."""

from collections import Counter
from collections.abc import Iterable

from engine.process.metrics import Metrics
from rules.decision import Decision
from rules.model import Reason


class Outcome:
    """The tallies of one batch.

    Decisions are shared objects, so they are counted by identity and multiplied out once.
    A grant that Redis denied counts as throttled.
    """

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self._decisions = Counter(decisions)
        self._denied: Counter[tuple[int, Decision]] = Counter()

    def deny(self, offset: int, decision: Decision) -> None:
        """One grant of the detection at `offset` was denied by Redis."""
        self._denied[offset, decision] += 1

    def record(self, metrics: Metrics) -> None:
        """Add the tallies to the metrics."""
        detections, decisions = self._tally()
        for reason, count in detections.items():
            metrics.detections.labels(reason).inc(count)
        for reason, count in decisions.items():
            metrics.decisions.labels(reason).inc(count)
        held = sum(d.throttled * n for d, n in self._decisions.items())
        metrics.claims.labels("held").inc(held)

    def _tally(self) -> tuple[Counter[Reason], Counter[Reason]]:
        detections: Counter[Reason] = Counter()
        decisions: Counter[Reason] = Counter()
        for decision, count in self._decisions.items():
            detections[decision.reason] += count
            decisions[Reason.GRANTED] += len(decision.granted) * count
            for reason, campaigns in decision.outcomes:
                decisions[reason] += campaigns * count
        for (_, decision), campaigns in self._denied.items():
            decisions[Reason.GRANTED] -= campaigns
            decisions[Reason.THROTTLED] += campaigns
            if campaigns == len(decision.granted):
                detections[Reason.GRANTED] -= 1
                detections[Reason.THROTTLED] += 1
        return detections, decisions
