"""Adds the decisions and messages of a batch to the metrics, in a few calls."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from uuid import UUID

from engine.kafka.exemplars import note_exemplar
from engine.process.metrics import Metrics
from engine.trigger.grants import Grant
from rules.model import Reason
from rules.outcome import Decision, DecisionTally

_TALLY = attrgetter("tally")


class DecisionCounts:
    """The counts of a batch's decisions.

    Decisions share their tallies, so these are counted by identity and each is evaluated once;
    `by_tally` has the counts. `denied` has the detection, as a number, and the decision of each
    grant that Redis denied: such a grant counts as throttled, though not in `by_tally`.
    """

    def __init__(
        self, decisions: Sequence[Decision], denied: Iterable[tuple[int, Decision]] = ()
    ) -> None:
        self.decisions = decisions
        self.by_tally: Counter[DecisionTally] = Counter(map(_TALLY, decisions))
        self._denied = Counter(denied)

    def add_to(self, metrics: Metrics) -> None:
        """Add the counts to the metrics."""
        detections, decisions = self._by_reason()
        for reason, count in detections.items():
            metrics.detections.labels(reason).inc(count)
        for reason, count in decisions.items():
            metrics.decisions.labels(reason).inc(count)
        throttled = sum(tally.throttled * n for tally, n in self.by_tally.items())
        metrics.claims.labels("held").inc(throttled)

    def _by_reason(self) -> tuple[Counter[Reason], Counter[Reason]]:
        detections: Counter[Reason] = Counter()
        decisions: Counter[Reason] = Counter()
        of_any: Counter[DecisionTally] = Counter()
        for tally, count in self.by_tally.items():
            of_any[tally.of_any or tally] += count
        for tally, count in of_any.items():
            detections[tally.reason] += count
            decisions[Reason.GRANTED] += tally.granted * count
            for reason, campaigns in tally.outcomes:
                decisions[reason] += campaigns * count
        for (_, decision), campaigns in self._denied.items():
            decisions[Reason.GRANTED] -= campaigns
            decisions[Reason.THROTTLED] += campaigns
            if campaigns == decision.tally.granted:
                detections[Reason.GRANTED] -= 1
                detections[Reason.THROTTLED] += 1
        return detections, decisions


def counts_of_turn(decisions: Sequence[Decision], denied: Iterable[Grant]) -> DecisionCounts:
    """The counts of decisions, of whose grants Redis denied some."""
    # (A record may hold several detections: the offset does not tell them apart.)
    return DecisionCounts(decisions, [(id(grant.detection), grant.decision) for grant in denied])


def count_sent(metrics: Metrics, grants: Sequence[Grant], now: float) -> None:
    """Count grants whose messages were published, at `now` (epoch s)."""
    # (Counting a list is C, adding one at a time is not.)
    formats = Counter([grant.campaign.format for grant in grants])
    times = Counter([grant.detection.detected_at for grant in grants if not grant.is_call])
    ages: Counter[float] = Counter()
    for at, count in times.items():
        ages[max(0.0, now - at)] += count
    metrics.latency.observe_counts(ages)
    if ages and metrics.latency.wants_exemplar(now):
        sent = (grant for grant in grants if not grant.is_call)
        slowest = min(sent, key=lambda grant: grant.detection.detected_at)
        note_exemplar(
            metrics.latency,
            seconds=max(0.0, now - slowest.detection.detected_at),
            notification_id=str(UUID(bytes=slowest.notification_id)),
            record=slowest.detection.record,
            company=slowest.beacon.company_reference.id,
            campaign=slowest.campaign.id,
            now=now,
        )
    metrics.connector_handovers.inc(formats.pop("connector", 0))
    for name, count in formats.items():
        metrics.notifications.labels(name).inc(count)
