"""Counts decisions and messages: in the metrics, and by company for account holders.

Decisions of many detections share their tallies, so a batch is counted in a few calls. By campaign
each decision is multiplied out beside the pipeline; of large batches a part stands for all there.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from engine.process.metrics import Metrics
from engine.redis.figures import FigureSums
from engine.trigger.grants import DecidedDetection
from engine.trigger.message import Message
from rules.model import Decision, DecisionTally, Reason

_WRITE_SECONDS = 5.0
_MOST_WAITING = 20_000  # different tallies, or grants, until they are added
_MOST_CAMPAIGNS = 100_000  # of decisions that wait to be multiplied out
_LARGE = 200  # decisions of a batch
_PART = 16  # one in so many of a large batch is looked at by campaign
_CAMPAIGNS_AT_ONCE = 2_000
_TALLY = attrgetter("tally")


class DecisionCounter:
    """Counts for the metrics, and for `sums`; None if nothing is added up by company."""

    def __init__(self, metrics: Metrics, sums: "DecisionSums | None" = None) -> None:
        self._metrics = metrics
        self.sums = sums

    def count(self, decisions: Sequence[Decision], denied: int = 0) -> None:
        """Count decisions. Redis has `denied` so many of their throttled campaigns."""
        tallies = Counter(map(_TALLY, decisions))
        detections, campaigns = _by_reason(tallies)
        for reason, count in detections.items():
            self._metrics.detections.labels(reason).inc(count)
        for reason, count in campaigns.items():
            self._metrics.decisions.labels(reason).inc(count)
        throttled = sum(tally.throttled * n for tally, n in tallies.items())
        self._metrics.claims.labels("held").inc(throttled - denied)
        if self.sums is not None:
            self.sums.note_decided(decisions, tallies)

    def count_claimed(self, decided: Sequence[DecidedDetection]) -> None:
        """Count detections, and moments of visits, for which Redis was asked."""
        detections = [each for each in decided if each.event is None]
        if len(detections) < len(decided):
            self.count_moments([each for each in decided if each.event is not None])
        decisions = [each.decision for each in detections]
        self.count(decisions, sum([each.denied for each in detections]))
        if self.sums is not None:
            self.sums.note_granted([each for each in decisions if each.granted])

    def count_moments(self, decided: Sequence[DecidedDetection]) -> None:
        """Count what moments of visits fire. They are no detections."""
        _, campaigns = _by_reason(Counter([each.decision.tally for each in decided]))
        campaigns.pop(Reason.NOT_ENTERED, None)
        for reason, count in campaigns.items():
            self._metrics.decisions.labels(reason).inc(count)
        if self.sums is not None:
            self.sums.note_granted([e.decision for e in decided if e.decision.granted])

    def count_sent(self, messages: Sequence[Message], now: float) -> None:
        """Count messages that were published, at `now` (epoch s)."""
        metrics = self._metrics
        formats = Counter([each.campaign.format for each in messages])
        calls = formats.pop("connector", 0)
        metrics.connector_handovers.inc(calls)
        for name, count in formats.items():
            metrics.notifications.labels(name).inc(count)
        sent = [each.decided for each in messages if each.campaign.format != "connector"]
        ages: Counter[float] = Counter()
        times = Counter([each.detected_at for each in sent if not each.is_exit])
        for at, n in times.items():
            ages[max(0.0, now - at)] += n
        metrics.latency.observe_counts(ages)


def _by_reason(tallies: Counter[DecisionTally]) -> tuple[Counter[Reason], Counter[Reason]]:
    """Detections and campaigns by reason."""
    detections: Counter[Reason] = Counter()
    campaigns: Counter[Reason] = Counter()
    for tally, count in tallies.items():
        detections[tally.reason] += count
        campaigns[Reason.GRANTED] += tally.granted * count
        for reason, outcomes in tally.outcomes:
            campaigns[reason] += outcomes * count
    return detections, campaigns


class DecisionSums:
    """Adds decisions up by company, day, reason and campaign, and has the sums written while `run`
    runs."""

    name = "decision sums"

    def __init__(self, figures: FigureSums) -> None:
        self.figures = figures
        self._tallies: Counter[DecisionTally] = Counter()
        # Of a large batch a part stands for all. What waits refers to the campaigns' content, so it
        # is kept for no longer than a write.
        self._decisions: Counter[Decision] = Counter()
        self._campaigns = 0
        self._granted: Counter[Decision] = Counter()

    def note_decided(self, decisions: Sequence[Decision], tallies: Counter[DecisionTally]) -> None:
        """Decisions about a batch's detections; their grants are noted by themselves."""
        self._tallies.update(tallies)
        if len(self._tallies) > _MOST_WAITING:
            self._add_tallies()
        part = 1 if len(decisions) <= _LARGE else _PART
        for decision, count in Counter(decisions[random.randrange(part) :: part]).items():  # noqa: S311
            if decision not in self._decisions:
                if self._campaigns >= _MOST_CAMPAIGNS:
                    self.figures.drop(1)
                    continue
                self._campaigns += len(decision.open) + sum(n for _, n in decision.closed)
            self._decisions[decision] += count * part

    def note_granted(self, decisions: Sequence[Decision]) -> None:
        """Grants that hold their claim or need none."""
        self._granted.update(decisions)
        if len(self._granted) > _MOST_WAITING:
            self._add_grants()

    async def run(self) -> None:
        """Add up and write every few seconds until cancelled, and then the rest."""
        try:
            while True:
                await asyncio.sleep(_WRITE_SECONDS)
                await self._write()
        finally:
            await self._write()

    async def _write(self) -> None:
        self._add_tallies()
        self._add_grants()
        await self._add_campaigns()
        await self.figures.write()

    def _add_tallies(self) -> None:
        """Add reasons."""
        tallies, self._tallies = self._tallies, Counter()
        for tally, count in tallies.items():
            if tally.company_id:  # else of a place that no company has
                for reason, campaigns in tally.outcomes:
                    self.figures.note_reason(tally.company_id, reason, campaigns * count)

    def _add_grants(self) -> None:
        """Add grants."""
        granted: Counter[tuple[int, int]] = Counter()
        for decision, count in self._granted.items():
            for campaign in decision.granted:
                granted[decision.company_id, campaign.id] += count
        self._granted = Counter()
        for (company, campaign_id), count in granted.items():
            self.figures.note_reason(company, Reason.GRANTED, count)
            self.figures.note_campaign(company, campaign_id, Reason.GRANTED, count)

    async def _add_campaigns(self) -> None:
        """Multiply refusals out by campaign, in pieces: a beacon may have hundreds of campaigns."""
        decisions, self._decisions, self._campaigns = self._decisions, Counter(), 0
        added = 0
        while decisions:
            decision, count = decisions.popitem()
            for campaign_id, reason in decision.by_campaign:
                if reason is not Reason.GRANTED:  # those are grants
                    self.figures.note_campaign(decision.company_id, campaign_id, reason, count)
                    added += 1
            if added >= _CAMPAIGNS_AT_ONCE:
                added = 0
                await asyncio.sleep(0)
