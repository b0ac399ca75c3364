"""The result of `decide`: a decision, its numbers for the metrics, and its outcomes by campaign."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from rules.model import CampaignSnapshot, Reason

Counts = tuple[tuple[Reason, int], ...]


class DecisionTally(msgspec.Struct, frozen=True, eq=False):
    """The numbers that a decision adds to the metrics: campaigns by reason.

    `granted` and `throttled` are apart from the closed ones. Decisions of a company with equal
    numbers share one tally, so that a batch has few. `company_id` is 0 where the beacon is unknown;
    `of_any` is the same tally for no company.
    """

    reason: Reason
    closed: Counts
    throttled: int
    granted: int
    company_id: int
    of_any: "DecisionTally | None" = None

    @property
    def outcomes(self) -> Counts:
        """The refused campaigns by reason, the throttled ones included."""
        throttled = ((Reason.THROTTLED, self.throttled),) if self.throttled else ()
        return self.closed + throttled


@lru_cache(maxsize=16_384)
def _shared_tally(
    reason: Reason, closed: Counts, throttled: int, granted: int, company_id: int
) -> DecisionTally:
    of_any = _shared_tally(reason, closed, throttled, granted, 0) if company_id else None
    return DecisionTally(reason, closed, throttled, granted, company_id, of_any)


_NO_TALLY = DecisionTally(Reason.NO_CAMPAIGN, (), 0, 0, 0)


class CampaignOutcomes(msgspec.Struct, frozen=True, eq=False):
    """The ids of the campaigns that a decision checked, by reason, including GRANTED.

    Compared and hashed by identity, as its decision is. It may be kept for longer than the
    decision, which refers to the campaigns' content and would keep old versions of it in memory.
    """

    company_id: int
    closed: Mapping[Reason, Sequence[int]]
    open: tuple[tuple[int, Reason], ...]

    def __iter__(self) -> Iterator[tuple[int, Reason]]:
        for reason, closed in self.closed.items():
            for campaign_id in closed:
                yield campaign_id, reason
        yield from self.open

    def __len__(self) -> int:
        return len(self.open) + sum(map(len, self.closed.values()))


class Decision(msgspec.Struct, frozen=True, eq=False):
    """The outcome of one detection. Detections share decisions: compared and hashed by identity.

    `reason` is the check that refused the detection, or else the furthest check that any
    campaign reached. `closed` counts the refused campaigns by reason (a refused detection
    counts once), `throttled` those refused by their cache delay. `granted` passed every
    check and are sent if the caller's claim succeeds. `open` has the campaigns that are open by
    their schedule, granted or throttled; `closed_campaigns` has the ids of the others by reason.
    `company_id` is the company of the beacon, 0 where the beacon is unknown.
    """

    reason: Reason
    closed: Counts = ()
    throttled: int = 0
    granted: tuple[CampaignSnapshot, ...] = ()
    open: tuple[CampaignSnapshot, ...] = ()
    closed_campaigns: Mapping[Reason, Sequence[int]] = {}
    company_id: int = 0
    tally: DecisionTally = _NO_TALLY
    kept_outcomes: CampaignOutcomes | None = None

    def __post_init__(self) -> None:
        granted = len(self.granted)
        tally = _shared_tally(self.reason, self.closed, self.throttled, granted, self.company_id)
        msgspec.structs.force_setattr(self, "tally", tally)

    @property
    def outcomes(self) -> Counts:
        """How many campaigns each reason refused, `throttled` included."""
        return self.tally.outcomes

    @property
    def by_campaign(self) -> CampaignOutcomes:
        """The id of each checked campaign, with the reason of its refusal, or GRANTED.

        Always the same object. Empty if the detection was refused before its campaigns were
        checked.
        """
        found = self.kept_outcomes
        if found is None:
            granted = {campaign.id for campaign in self.granted}
            reasons = tuple(
                (campaign.id, Reason.GRANTED if campaign.id in granted else Reason.THROTTLED)
                for campaign in self.open
            )
            found = CampaignOutcomes(self.company_id, self.closed_campaigns, reasons)
            msgspec.structs.force_setattr(self, "kept_outcomes", found)
        return found
