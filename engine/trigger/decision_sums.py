"""Adds decisions up by company, hour, reason and campaign, for the figures of account holders.

Reasons come from the tallies that batches are counted by already. By campaign each decision is
multiplied out, beside the pipeline: a bounded number every few seconds, because a beacon may have
hundreds of campaigns that are closed. Of large batches a part stands for all there.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from engine.redis.figure_sums import FigureSums
from engine.trigger.counts import DecisionCounts
from engine.trigger.grants import Grant
from rules.day_figures import CampaignReason
from rules.model import Reason
from rules.outcome import CampaignOutcomes, Decision, DecisionTally

_WRITE_SECONDS = 5.0
_MOST_TALLIES = 20_000  # different ones, until they are added
_MOST_CAMPAIGNS = 200_000  # of decisions that wait to be multiplied out
_LARGE = 200  # decisions of a batch
_PART = 16  # one in so many of a large batch is looked at by campaign
_CAMPAIGNS_AT_ONCE = 2_000
_CAMPAIGNS_AT_THE_END = 100_000
# The statistics of days do not count these either.
_NO_DETECTIONS = frozenset({Reason.INACTIVE_VENUE, Reason.INACTIVE_BEACON})


class DecisionSums:
    """Counts decisions and, while `run` runs, adds them to `sums` and has these written."""

    name = "decision sums"

    def __init__(self, sums: FigureSums) -> None:
        self._sums = sums
        self._tallies: Counter[DecisionTally] = Counter()
        # To be multiplied out by campaign: whole batches, parts of large ones, and those before.
        # Their outcomes wait, not the decisions: these would keep campaigns that were edited since.
        self._whole: Counter[CampaignOutcomes] = Counter()
        self._sampled: Counter[CampaignOutcomes] = Counter()
        self._next: Iterator[tuple[CampaignOutcomes, int]] = iter(())
        self._waiting_campaigns = self._next_campaigns = 0

    def note_decided(self, counts: DecisionCounts) -> None:
        """Decisions about a batch's detections; their grants are noted by themselves."""
        self._tallies.update(counts.by_tally)
        if len(self._tallies) > _MOST_TALLIES:
            self._add_tallies()
        decisions = counts.decisions
        if len(decisions) <= _LARGE:
            self._keep(self._whole, decisions)
        else:
            self._keep(self._sampled, decisions[random.randrange(_PART) :: _PART])  # noqa: S311

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Grants that hold their claim or need none, and those that were denied one; all of one
        company."""
        self._note_grants(claimed, Reason.GRANTED)
        self._note_grants(denied, Reason.THROTTLED)

    def note_sent(self, grants: Sequence[Grant]) -> None:
        """Grants whose messages were published. The connector role counts its own notifications."""
        sent = Counter([grant.device.company_id for grant in grants if not grant.is_call])
        for company, count in sent.items():
            self._sums.note_notifications(company, count)

    async def run(self) -> None:
        """Add up and write every few seconds until cancelled, and then the rest."""
        try:
            while True:
                await asyncio.sleep(_WRITE_SECONDS)
                self._add_tallies()
                self._add_campaigns(_CAMPAIGNS_AT_ONCE)
                await self._sums.write()
        finally:
            self._add_tallies()
            self._add_campaigns(_CAMPAIGNS_AT_THE_END)
            await self._sums.write()

    def _note_grants(self, grants: Sequence[Grant], reason: Reason) -> None:
        if not grants:
            return
        now = self._sums.now()
        figures = self._sums.today(grants[0].beacon.company_reference.id, now)
        if figures is None:
            return
        figures.reasons[reason] += len(grants)
        counts = Counter([grant.campaign.id for grant in grants])
        by_reason = {CampaignReason(number, reason): count for number, count in counts.items()}
        self._sums.add_campaigns(figures, by_reason)

    def _add_tallies(self) -> None:
        """Add detections and reasons."""
        tallies, self._tallies = self._tallies, Counter()
        now = self._sums.now()
        for tally, count in tallies.items():
            if not tally.company_id:
                continue  # of a beacon that no company has
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
