"""Adds daily figures up by day, or by record, the largest first."""

from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import Integer, Select, and_, case, func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.models import Beacon, Campaign, Statistic, Venue
from catalog.soft_deletion import with_deleted
from catalog.statistics import StatisticFilter

_FIGURES = (
    func.sum(Statistic.detections, type_=Integer).label("detections"),
    # A device counts once a day and record.
    func.sum(Statistic.devices, type_=Integer).label("visits"),
    func.sum(Statistic.notifications, type_=Integer).label("notifications"),
)


class DayTotal(NamedTuple):
    """All records of a kind on one day."""

    day: date
    detections: int
    visits: int
    notifications: int


class RecordTotal(NamedTuple):
    """All days of one record. Deleted records keep their names."""

    venue_id: int
    venue: str | None
    kind: str
    id: int
    name: str | None
    detections: int
    visits: int
    notifications: int


async def day_totals(
    session: AsyncSession, company_id: int, choice: StatisticFilter, number: int | None
) -> list[DayTotal]:
    """Sums by day of a company's records of a kind, or of one record. Raises SQLAlchemyError."""
    query = _chosen(select(Statistic.day, *_FIGURES), company_id, choice)
    if number is not None:
        query = query.where(Statistic.ref == number)
    query = query.group_by(Statistic.day).order_by(Statistic.day)
    rows = await session.execute(with_deleted(query))
    return [DayTotal(day, int(d), int(v), int(n)) for day, d, v, n in rows]


async def record_totals(
    session: AsyncSession, company_id: int, choice: StatisticFilter, limit: int
) -> list[RecordTotal]:
    """The records of a kind with the largest figures of a company. Raises SQLAlchemyError."""
    of, kind = Statistic, choice.kind
    query = _chosen(select(of.ref, of.venue_id, *_FIGURES), company_id, choice)
    by = "notifications" if kind == "campaign" else "detections"
    largest = query.group_by(of.ref, of.venue_id)
    summed = with_deleted(largest.order_by(func.sum(getattr(of, by)).desc(), of.ref).limit(limit))
    top = summed.subquery("top")
    name = case({"venue": Venue.name, "beacon": Beacon.name}, value=kind, else_=Campaign.name)
    named = (
        select(top.c.venue_id, Venue.name, top.c.ref, name.label("name"), *top.c[-3:])
        .outerjoin(Venue, Venue.id == top.c.venue_id)
        .outerjoin(Beacon, and_(literal(kind) == "beacon", Beacon.id == top.c.ref))
        .outerjoin(Campaign, and_(literal(kind) == "campaign", Campaign.id == top.c.ref))
        .order_by(top.c[by].desc(), top.c.ref)
    )
    return [
        RecordTotal(venue_id, venue, kind or "", ref, called, int(d), int(v), int(n))
        for venue_id, venue, ref, called, d, v, n in await session.execute(with_deleted(named))
    ]


def _chosen(
    query: Select[*tuple[Any, ...]], company_id: int, choice: StatisticFilter
) -> Select[*tuple[Any, ...]]:
    of = Statistic
    query = query.join(Venue, Venue.id == of.venue_id).where(
        Venue.company_id == company_id,
        of.kind == choice.kind,
        of.day.between(choice.first, choice.last),
    )
    return query if choice.venue is None else query.where(of.venue_id == int(choice.venue))
