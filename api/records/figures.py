"""Outcomes of detections by hour, and by reason and campaign, with the catalog's names."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import Answer, Count, Id, Record, Timestamp, timestamp
from catalog.models import Campaign, Venue
from catalog.soft_deletion import with_deleted
from rules.day_figures import CampaignReason, DayFigures
from rules.model import Reason

_REASONS: dict[str, Any] = {"enum": [reason.value for reason in Reason]}


class HourFiguresAnswer(Answer):
    hour: Timestamp = Field(description="Its begin, in UTC.")
    detections: Count
    notifications: Count


class CampaignReasonAnswer(Answer):
    venue_id: Id
    venue: str
    id: Id
    name: str
    count: Count


class ReasonFiguresAnswer(Answer):
    reason: str = Field(json_schema_extra=_REASONS)
    count: Count
    campaigns: list[CampaignReasonAnswer] = Field(
        description="The largest first; empty if the reason applies before campaigns are checked."
    )


class _CampaignPlace(NamedTuple):
    venue_id: int
    venue: str
    name: str


def shown_hours(days: Mapping[date, DayFigures]) -> list[Record]:
    """The hours with figures, the oldest first."""
    return [
        {
            "hour": timestamp(datetime.combine(day, time(hour), UTC)),
            "detections": figures.detections[hour],
            "notifications": figures.notifications[hour],
        }
        for day, figures in days.items()
        for hour in sorted(figures.detections.keys() | figures.notifications.keys())
    ]


async def shown_reasons(
    session: AsyncSession, company_id: int, days: Iterable[DayFigures], limit: int
) -> list[Record]:
    """The reasons, the most frequent first, each with `limit` campaigns. One query."""
    reasons, campaigns = Counter[Reason](), Counter[CampaignReason]()
    for figures in days:
        reasons.update(figures.reasons)
        campaigns.update(figures.campaigns)
    largest = {reason: _largest(campaigns, reason, limit) for reason in reasons}
    numbers = {number for listed in largest.values() for number, _ in listed}
    places = await _places(session, company_id, numbers) if numbers else {}
    return [
        {
            "reason": reason.value,
            "count": count,
            "campaigns": [
                {"id": number, **places[number]._asdict(), "count": of_it}
                for number, of_it in largest[reason]
                if number in places
            ],
        }
        for reason, count in sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    ]


def _largest(
    campaigns: Mapping[CampaignReason, int], reason: Reason, limit: int
) -> list[tuple[int, int]]:
    counts = [(number, count) for (number, of), count in campaigns.items() if of is reason]
    return sorted(counts, key=lambda each: (-each[1], each[0]))[:limit]


async def _places(
    session: AsyncSession, company_id: int, numbers: Iterable[int]
) -> dict[int, _CampaignPlace]:
    """Deleted records keep their names."""
    query = select(Campaign.id, Venue.id.label("venue_id"), Venue.name, Campaign.name)
    query = query.join(Venue, Campaign.venue_id == Venue.id)
    query = query.where(Venue.company_id == company_id, Campaign.id.in_(numbers))
    rows = await session.execute(with_deleted(query))
    return {number: _CampaignPlace(venue, called, name) for number, venue, called, name in rows}
