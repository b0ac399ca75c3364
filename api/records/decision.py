"""The last decisions about a device, as the trigger stored them, with the catalog's names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import Answer, Id, Record, Timestamp
from catalog.models import Beacon, Campaign, Venue
from catalog.soft_deletion import with_deleted
from rules.local_time import zone_clock
from rules.model import Reason
from rules.stored_decision import StoredDecision

_REASONS: dict[str, Any] = {"enum": [reason.value for reason in Reason]}
Name = Field(description="Empty if the record was deleted.")


class CampaignOutcomeAnswer(Answer):
    id: Id
    name: str = Name
    outcome: str = Field(json_schema_extra=_REASONS)


class HeardBeaconAnswer(Answer):
    id: Id
    name: str = Name


class DecisionAnswer(Answer):
    """A rules.stored_decision.StoredDecision."""

    detected_at: Timestamp
    decided_at: Timestamp
    lieu: str = Field(description="The venue's name; empty if the venue was deleted.")
    beacon: HeardBeaconAnswer
    proximity: Literal["immediate", "near", "far", "unknown"]
    reason: str = Field(
        description="The furthest check that any campaign reached, or the one that refused the "
        "detection.",
        json_schema_extra=_REASONS,
    )
    campaigns: list[CampaignOutcomeAnswer] = Field(
        description="The outcome of each campaign; empty if the detection was refused."
    )


class _Place(NamedTuple):
    beacon: str
    venue: str
    time_zone: str | None


_NOWHERE = _Place("", "", None)


async def shown_decisions(
    session: AsyncSession, company_id: int, decisions: Sequence[StoredDecision]
) -> list[Record]:
    """Decisions about a device of the company, in two queries. Deleted records keep their names."""
    if not decisions:
        return []
    places = await _places(session, company_id, {each.beacon for each in decisions})
    numbers = {n for each in decisions for listed in each.campaigns.values() for n in listed}
    names = await _campaign_names(session, company_id, numbers)
    return [_shown(each, places, names) for each in decisions]


def _shown(kept: StoredDecision, places: Mapping[int, _Place], names: Mapping[int, str]) -> Record:
    place = places.get(kept.beacon, _NOWHERE)
    written = zone_clock(place.time_zone or "UTC").written
    return {
        "detected_at": written(kept.detected_at),
        "decided_at": written(kept.decided_at),
        "lieu": place.venue,
        "beacon": {"id": kept.beacon, "name": place.beacon},
        "proximity": kept.zone.name.lower(),
        "reason": kept.reason,
        "campaigns": [
            {"id": number, "name": names.get(number, ""), "outcome": outcome}
            for outcome, numbers in kept.campaigns.items()
            for number in numbers
        ],
    }


async def _places(
    session: AsyncSession, company_id: int, numbers: Iterable[int]
) -> dict[int, _Place]:
    named = (Beacon.name.label("beacon"), Venue.name.label("venue"))
    query = select(Beacon.id, *named, Venue.time_zone).join(Beacon.venue)
    query = query.where(Venue.company_id == company_id, Beacon.id.in_(numbers))
    return {
        row.id: _Place(row.beacon, row.venue, row.time_zone)
        for row in await session.execute(with_deleted(query))
    }


async def _campaign_names(
    session: AsyncSession, company_id: int, numbers: Iterable[int]
) -> dict[int, str]:
    query = select(Campaign.id, Campaign.name).join(Venue, Campaign.venue_id == Venue.id)
    query = query.where(Venue.company_id == company_id, Campaign.id.in_(numbers))
    return {row.id: row.name for row in await session.execute(with_deleted(query))}
