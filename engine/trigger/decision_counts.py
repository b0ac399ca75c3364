"""Counts decisions and messages: in the metrics, and by company for account holders.

Decisions of many detections share their tallies, so a batch is counted in a few calls. By campaign
each decision is multiplied out beside the pipeline: a bounded number every few seconds, because a
beacon may have hundreds of campaigns that are closed. Of large batches a part stands for all there.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from uuid import UUID

from engine.kafka.tracing import note_exemplar
from engine.process.metrics import Metrics
from engine.redis.figures import FigureSums
from engine.trigger.grants import DecidedDetection, Grant
from rules.model import CampaignOutcomes, CampaignReason, Decision, DecisionTally, Reason

_WRITE_SECONDS = 5.0
_MOST_TALLIES = 20_000  # different ones, until they are added
_MOST_CAMPAIGNS = 200_000  # of decisions that wait to be multiplied out
_LARGE = 200  # decisions of a batch
_PART = 16  # one in so many of a large batch is looked at by campaign
_CAMPAIGNS_AT_ONCE = 2_000
_CAMPAIGNS_AT_THE_END = 100_000
# The statistics of days do not count these either.
_NO_DETECTIONS = frozenset(
    {
        Reason.UNKNOWN_TAG,
        Reason.UNKNOWN_APPLICATION,
        Reason.OUTSIDE,
        Reason.INACCURATE,
        Reason.INACTIVE_VENUE,
        Reason.INACTIVE_BEACON,
        Reason.INACTIVE_GEOFENCE,
        Reason.INACTIVE_TAG,
    }
)
_TALLY = attrgetter("tally")


class DecisionCounter:
    """Counts for the metrics, and for `sums`; None if nothing is added up by company."""

    def __init__(self, metrics: Metrics, sums: "DecisionSums | None" = None) -> None:
        self._metrics = metrics
        self.sums = sums

    def count(
        self, decisions: Sequence[Decision], decided: Sequence[DecidedDetection] = ()
    ) -> None:
        """Count decisions. `decided` are those whose grants Redis was asked for.

        A grant that Redis has denied counts as throttled.
        """
        tallies = Counter(map(_TALLY, decisions))
        detections, campaigns = _by_reason(tallies, decided)
        for reason, count in detections.items():
            self._metrics.detections.labels(reason).inc(count)
        for reason, count in campaigns.items():
            self._metrics.decisions.labels(reason).inc(count)
        throttled = sum(tally.throttled * n for tally, n in tallies.items())
        self._metrics.claims.labels("held").inc(throttled)
        if self.sums is not None:
            self.sums.note_decided(decisions, tallies)
            self.sums.note_claims(decided)

    def count_sent(self, grants: Sequence[Grant], now: float) -> None:
        """Count grants whose messages were published, at `now` (epoch s)."""
        metrics = self._metrics
        formats = Counter([grant.campaign.format for grant in grants])
        metrics.connector_handovers.inc(formats.pop("connector", 0))
        for name, count in formats.items():
            metrics.notifications.labels(name).inc(count)
        sent = grants if formats.total() == len(grants) else [g for g in grants if not g.is_call]
        times = Counter([grant.detection.detected_at for grant in sent])
        ages: Counter[float] = Counter()
        for at, count in times.items():
            ages[max(0.0, now - at)] += count
        metrics.latency.observe_counts(ages)
        if sent and metrics.latency.wants_exemplar(now):
            self._note_slowest(sent, now)
        if self.sums is not None:
            self.sums.note_sent(sent)

    def _note_slowest(self, sent: Sequence[Grant], now: float) -> None:
        slowest = min(sent, key=lambda grant: grant.detection.detected_at)
        note_exemplar(
            self._metrics.latency,
            seconds=max(0.0, now - slowest.detection.detected_at),
            notification_id=str(UUID(bytes=slowest.notification_id)),
            record=slowest.record,
            company=slowest.beacon.company_reference.id,
            campaign=slowest.campaign.id,
            now=now,
        )


def _by_reason(
    tallies: Counter[DecisionTally], decided: Sequence[DecidedDetection]
) -> tuple[Counter[Reason], Counter[Reason]]:
    """Detections and campaigns by reason."""
    detections: Counter[Reason] = Counter()
    campaigns: Counter[Reason] = Counter()
    of_any: Counter[DecisionTally] = Counter()
    for tally, count in tallies.items():
        of_any[tally.of_any or tally] += count
    for tally, count in of_any.items():
        detections[tally.reason] += count
        campaigns[Reason.GRANTED] += tally.granted * count
        for reason, outcomes in tally.outcomes:
            campaigns[reason] += outcomes * count
    for each in [each for each in decided if each.denied]:
        campaigns[Reason.GRANTED] -= each.denied
        campaigns[Reason.THROTTLED] += each.denied
        if not each.grants:
            detections[Reason.GRANTED] -= 1
            detections[Reason.THROTTLED] += 1
    return detections, campaigns


class DecisionSums:
    """Adds decisions up by company, hour, reason and campaign, and has the sums written while `run`
    runs."""

    name = "decision sums"

    def __init__(self, sums: FigureSums) -> None:
        self._sums = sums
        self._tallies: Counter[DecisionTally] = Counter()
        # To be multiplied out by campaign: whole batches, parts of large ones, and those before.
        # Their outcomes wait, not the decisions: these would keep campaigns that were edited since.
        self._granted: Counter[CampaignOutcomes] = Counter()
        self._denied: Counter[tuple[int, int]] = Counter()  # by company and campaign
        self._whole: Counter[CampaignOutcomes] = Counter()
        self._sampled: Counter[CampaignOutcomes] = Counter()
        self._next: Iterator[tuple[CampaignOutcomes, int]] = iter(())
        self._waiting_campaigns = self._next_campaigns = 0

    def note_decided(self, decisions: Sequence[Decision], tallies: Counter[DecisionTally]) -> None:
        """Decisions about a batch's detections; their grants are noted by themselves."""
        self._tallies.update(tallies)
        if len(self._tallies) > _MOST_TALLIES:
            self._add_tallies()
        if len(decisions) <= _LARGE:
            self._keep(self._whole, decisions)
        else:
            self._keep(self._sampled, decisions[random.randrange(_PART) :: _PART])  # noqa: S311

    def note_claims(self, decided: Sequence[DecidedDetection]) -> None:
        """Grants that hold their claim or need none, and those that were denied one."""
        # Detections share their decisions, and few grants are denied.
        self._granted.update([each.decision.by_campaign for each in decided])
        for each in [each for each in decided if each.denied]:
            held = {grant.campaign.id for grant in each.grants}
            for campaign in each.decision.granted:
                if campaign.id not in held:
                    self._denied[each.decision.company_id, campaign.id] += 1
        if len(self._granted) + len(self._denied) > _MOST_TALLIES:
            self._add_grants()

    def note_sent(self, grants: Sequence[Grant]) -> None:
        """Notifications that were published."""
        sent = Counter([grant.beacon.company_reference.id for grant in grants])
        for company, count in sent.items():
            self._sums.note_notifications(company, count)

    async def run(self) -> None:
        """Add up and write every few seconds until cancelled, and then the rest."""
        try:
            while True:
                await asyncio.sleep(_WRITE_SECONDS)
                self._add_tallies()
                self._add_grants()
                self._add_campaigns(_CAMPAIGNS_AT_ONCE)
                await self._sums.write()
        finally:
            self._add_tallies()
            self._add_grants()
            self._add_campaigns(_CAMPAIGNS_AT_THE_END)
            await self._sums.write()

    def _add_grants(self) -> None:
        """Add grants, and denied ones."""
        granted: Counter[tuple[int, int]] = Counter()
        for outcomes, count in self._granted.items():
            for campaign_id, reason in outcomes.open:
                if reason is Reason.GRANTED:
                    granted[outcomes.company_id, campaign_id] += count
        denied = self._denied
        self._granted, self._denied = Counter(), Counter()
        self._add_by_campaign(granted - denied, Reason.GRANTED)
        self._add_by_campaign(denied, Reason.THROTTLED)

    def _add_by_campaign(self, counts: Counter[tuple[int, int]], reason: Reason) -> None:
        now = self._sums.now()
        for (company, campaign), count in counts.items():
            figures = self._sums.today(company, now)
            if figures is not None:
                figures.reasons[reason] += count
                self._sums.add_campaigns(figures, {CampaignReason(campaign, reason): count})

    def _add_tallies(self) -> None:
        """Add detections and reasons."""
        tallies, self._tallies = self._tallies, Counter()
        now = self._sums.now()
        for tally, count in tallies.items():
            if not tally.company_id:
                continue  # of a place that no company has
            figures = self._sums.today(tally.company_id, now)
            if figures is None:
                continue
            if tally.reason not in _NO_DETECTIONS:
                figures.detections[now.hour] += count
            for reason, campaigns in tally.outcomes:
                figures.reasons[reason] += campaigns * count

    def _add_campaigns(self, most: int) -> None:
        """Multiply out by campaign, the oldest first, until so many campaigns were added to."""
        now, left = self._sums.now(), most
        for outcomes, count in self._waiting():
            self._next_campaigns -= len(outcomes)
            left -= 1
            # (Those that fire are grants.)
            refused = [
                CampaignReason(number, reason)
                for number, reason in outcomes
                if reason is not Reason.GRANTED
            ]
            if refused and (figures := self._sums.today(outcomes.company_id, now)) is not None:
                self._sums.add_campaigns(figures, dict.fromkeys(refused, count))
                left -= len(refused)
            if left <= 0:
                return

    def _waiting(self) -> Iterator[tuple[CampaignOutcomes, int]]:
        yield from self._next
        whole, sampled = self._whole.items(), self._sampled.items()
        self._whole, self._sampled = Counter(), Counter()
        self._next_campaigns, self._waiting_campaigns = self._waiting_campaigns, 0
        self._next = chain(whole, ((each, count * _PART) for each, count in sampled))
        yield from self._next

    def _keep(self, kept: Counter[CampaignOutcomes], decisions: Sequence[Decision]) -> None:
        """Count them by their outcomes; those that would be too many are left out."""
        for decision, count in Counter(decisions).items():
            outcomes = decision.by_campaign
            if outcomes in kept:
                kept[outcomes] += count
            elif not outcomes:
                continue  # refused before its campaigns were looked at
            elif self._waiting_campaigns + self._next_campaigns < _MOST_CAMPAIGNS:
                kept[outcomes] = count
                self._waiting_campaigns += len(outcomes)
            else:
                self._sums.drop(1)
