"""Counts decisions and messages: in the metrics, and by company for account holders.

Decisions of many detections share their tallies, so a batch is counted in a few calls. By campaign
each decision is multiplied out beside the pipeline; of large batches a part stands for all there.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter

from redis.exceptions import RedisError

from catalog.bounds import chunked
from engine.process.metrics import Metrics
from engine.redis.figures import CompanyDay, FigureStore, campaign_field, reason_field
from engine.redis.store import write_often
from engine.trigger.grants import DecidedDetection
from engine.trigger.message import Message
from rules.model import Decision, DecisionTally, Reason

_WRITE_SECONDS = 5.0
_MOST_WAITING = 20_000  # different tallies, or grants, until they are added
_MOST_CAMPAIGNS = 100_000  # of decisions that wait to be multiplied out
_LARGE = 200  # decisions of a batch
_PART = 16  # one in so many of a large batch is looked at by campaign
_CAMPAIGNS_AT_ONCE = 2_000
_DAYS_A_WRITE = 100
_TALLY = attrgetter("tally")


@dataclass(kw_only=True, eq=False)
class DecisionCounter:
    """Counts for the metrics, and adds up by company, day, reason and campaign what `run` writes to
    `store`. `clock` in epoch seconds."""

    metrics: Metrics
    store: FigureStore
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._tallies: Counter[DecisionTally] = Counter()
        self._granted: Counter[Decision] = Counter()
        # Of a large batch a part stands for all. What waits refers to the campaigns' content, so it
        # is kept for no longer than a write.
        self._decisions: Counter[Decision] = Counter()
        self._campaigns = 0
        self._days: dict[CompanyDay, Counter[str]] = {}

    def count(self, decisions: Sequence[Decision], denied: int = 0) -> None:
        """Count decisions. Redis has `denied` so many of their throttled campaigns."""
        tallies = Counter(map(_TALLY, decisions))
        detections, campaigns = _by_reason(tallies)
        for reason, count in detections.items():
            self.metrics.detections.labels(reason).inc(count)
        for reason, count in campaigns.items():
            self.metrics.decisions.labels(reason).inc(count)
        throttled = sum(tally.throttled * n for tally, n in tallies.items())
        self.metrics.claims.labels("held").inc(throttled - denied)
        self._note_decided(decisions, tallies)

    def count_claimed(self, decided: Sequence[DecidedDetection]) -> None:
        """Count detections, and moments of visits, for which Redis was asked."""
        detections = [each for each in decided if each.event is None]
        if len(detections) < len(decided):
            self.count_moments([each for each in decided if each.event is not None])
        decisions = [each.decision for each in detections]
        self.count(decisions, sum([each.denied for each in detections]))
        self._note_granted([each for each in decisions if each.granted])

    def count_moments(self, decided: Sequence[DecidedDetection]) -> None:
        """Count what moments of visits fire. They are no detections."""
        _, campaigns = _by_reason(Counter([each.decision.tally for each in decided]))
        campaigns.pop(Reason.NOT_ENTERED, None)
        for reason, count in campaigns.items():
            self.metrics.decisions.labels(reason).inc(count)
        self._note_granted([e.decision for e in decided if e.decision.granted])

    def count_sent(self, messages: Sequence[Message], now: float) -> None:
        """Count messages that were published, at `now` (epoch s)."""
        metrics = self.metrics
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

    async def run(self) -> None:
        """Add up and write every few seconds until cancelled, and then the rest."""
        await write_often(self.write, _WRITE_SECONDS)

    async def write(self) -> None:
        """Write all sums, or drop them: of a call that failed, Redis may have added some, and sums
        that are too low are better than sums counted twice."""
        self._add_waiting()
        await self._add_campaigns()
        days, self._days = self._days, {}
        for part in map(dict, chunked(days.items(), _DAYS_A_WRITE)):
            try:
                await self.store.add(part)
            except (RedisError, OSError, TimeoutError):
                # (Calls that the pipelines wait for log the outage.)
                self.metrics.redis_errors.inc()
                self.metrics.figures_dropped.inc(sum(map(len, part.values())))

    def _note_decided(self, decisions: Sequence[Decision], tallies: Counter[DecisionTally]) -> None:
        """Decisions about a batch's detections; their grants are noted by themselves."""
        self._tallies.update(tallies)
        part = 1 if len(decisions) <= _LARGE else _PART
        for decision, count in Counter(decisions[random.randrange(part) :: part]).items():  # noqa: S311
            if decision not in self._decisions:
                if self._campaigns >= _MOST_CAMPAIGNS:
                    self.metrics.figures_dropped.inc()
                    continue
                self._campaigns += len(decision.open) + sum(n for _, n in decision.closed)
            self._decisions[decision] += count * part
        if len(self._tallies) > _MOST_WAITING:
            self._add_waiting()

    def _note_granted(self, decisions: Sequence[Decision]) -> None:
        """Grants that hold their claim or need none."""
        self._granted.update(decisions)
        if len(self._granted) > _MOST_WAITING:
            self._add_waiting()

    def _add_waiting(self) -> None:
        """Add the reasons of tallies, and grants."""
        tallies, self._tallies = self._tallies, Counter()
        granted, self._granted = self._granted, Counter()
        for tally, count in tallies.items():
            if tally.company_id:  # else of a place that no company has
                for reason, campaigns in tally.outcomes:
                    self._add(tally.company_id, reason_field(reason), campaigns * count)
        for decision, count in granted.items():
            for campaign in decision.granted:
                self._add(decision.company_id, reason_field(Reason.GRANTED), count)
                self._add(decision.company_id, campaign_field(campaign.id, Reason.GRANTED), count)

    async def _add_campaigns(self) -> None:
        """Multiply refusals out by campaign, in pieces: a beacon may have hundreds of campaigns."""
        decisions, self._decisions, self._campaigns = self._decisions, Counter(), 0
        added = 0
        while decisions:
            decision, count = decisions.popitem()
            for campaign_id, reason in decision.by_campaign:
                if reason is not Reason.GRANTED:  # those are grants
                    self._add(decision.company_id, campaign_field(campaign_id, reason), count)
                    added += 1
            if added >= _CAMPAIGNS_AT_ONCE:
                added = 0
                await asyncio.sleep(0)

    def _add(self, company_id: int, field: str, count: int) -> None:
        day = CompanyDay(company_id, datetime.fromtimestamp(self.clock(), UTC).date())
        self._days.setdefault(day, Counter())[field] += count


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
