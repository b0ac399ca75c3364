"""Adds the decisions and messages of a batch to the metrics, in a few calls."""

from collections import Counter
from collections.abc import Iterable

from engine.process.metrics import Metrics
from engine.trigger.grants import Grant
from rules.decision import Decision
from rules.model import Reason


class DecisionCounts:
    """The counts of a batch's decisions.

    Detections share decision objects, so the objects are counted by identity and each is evaluated
    once. `denied` has the detection, as a number, and the decision of each grant that Redis denied:
    such a grant counts as throttled.
    """

    def __init__(
        self, decisions: Iterable[Decision], denied: Iterable[tuple[int, Decision]] = ()
    ) -> None:
        self._decisions = Counter(decisions)
        self._denied = Counter(denied)

    def add_to(self, metrics: Metrics) -> None:
        """Add the counts to the metrics."""
        detections, decisions = self._by_reason()
        for reason, count in detections.items():
            metrics.detections.labels(reason).inc(count)
        for reason, count in decisions.items():
            metrics.decisions.labels(reason).inc(count)
        throttled = sum(decision.throttled * n for decision, n in self._decisions.items())
        metrics.claims.labels("held").inc(throttled)

    def _by_reason(self) -> tuple[Counter[Reason], Counter[Reason]]:
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


def count_sent(metrics: Metrics, grants: Iterable[Grant], now: float) -> None:
    """Count grants whose messages were published, at `now` (epoch s)."""
    formats: Counter[str] = Counter()
    ages: Counter[float] = Counter()
    for grant in grants:
        formats[grant.campaign.format] += 1
        if not grant.is_call:
            ages[max(0.0, now - grant.detection.detected_at)] += 1
    metrics.latency.observe_counts(ages)
    metrics.connector_handovers.inc(formats.pop("connector", 0))
    for name, count in formats.items():
        metrics.notifications.labels(name).inc(count)
