"""The daily figures of venues, places, campaigns and visits."""

from collections.abc import AsyncIterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args

from sqlalchemy import (
    ColumnElement,
    Date,
    Integer,
    Row,
    Select,
    case,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from catalog.inputs import is_id
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Geofence,
    ScanTag,
    Statistic,
    Venue,
    VisitStatistic,
)
from catalog.session import with_deleted
from rules.visits import LENGTHS

# The offset at which a day begins first.
_EAST = timedelta(hours=14)
_WEEK = timedelta(days=6)
PLACES: dict[str, Any] = {
    "beacon": Beacon,
    "geofence": Geofence,
    "nfc": ScanTag,
    "qrcode": ScanTag,
}
_TABLES = {"venue": Venue, **PLACES, "campaign": Campaign}
StatisticKind = Literal["venue", "beacon", "geofence", "nfc", "qrcode", "campaign"]
STATISTIC_KINDS = get_args(StatisticKind)
_ORDER = case({kind: number for number, kind in enumerate(STATISTIC_KINDS)}, value=Statistic.kind)


class StatisticLine(NamedTuple):
    """One day of a venue, a place or a campaign. `day` is that of the venue's time zone.

    `detections` are those of beacons, `place_detections` those of other places.
    `devices` is the number of distinct devices of this line, so lines must not be added up. Deleted
    records keep their names. Test devices are not counted.
    """

    day: date
    company: str | None
    venue_id: int
    venue: str | None
    kind: str
    id: int
    name: str | None
    detections: int
    devices: int
    notifications: int
    place_detections: int


def days_of(now: datetime, first: date | None, last: date | None) -> tuple[date, date]:
    """The first and the last day; by default the first is a week before the last.

    The last one is by default today, `now` in UTC: where a day begins first, in the east.
    """
    week_ends = last or now.date()
    begin = first or week_ends - min(_WEEK, week_ends - date.min)
    return begin, last or (now + _EAST).date()


class StatisticFilter(NamedTuple):
    """Which lines to read: days from `first` to `last`, both included; None is any.

    `company` is an id, `venue` an id, or a text: a name or an id.
    """

    first: date
    last: date
    company: int | None = None
    venue: str | int | None = None
    kind: str | None = None


async def statistic_lines(
    session: AsyncSession,
    choice: StatisticFilter,
    after: StatisticLine | None = None,
    limit: int | None = None,
) -> AsyncIterator[StatisticLine]:
    """The lines behind `after` in the order of day, venue, kind, id.

    Raises SQLAlchemyError or OSError.
    """
    of = Statistic
    figures = (of.detections, of.devices, of.notifications, of.place_detections)
    query = _filtered(select(of.day, *_named(of), *figures), of, choice).limit(limit)
    if after is not None:
        here = tuple_(of.day, of.venue_id, _ORDER, of.ref)
        day, kind = literal(after.day, Date()), STATISTIC_KINDS.index(after.kind)
        query = query.where(here > tuple_(day, after.venue_id, kind, after.id))
    query = query.order_by(of.day, of.venue_id, _ORDER, of.ref)
    async for row in await session.stream(with_deleted(query)):
        yield StatisticLine._make(row)


def _named(of: type[Statistic] | type[VisitStatistic]) -> Sequence[Any]:
    """Company, venue with its id, kind, id and name of the counted record."""
    names = {
        kind: select(table.name).where(table.id == of.ref).correlate(of).scalar_subquery()
        for kind, table in _TABLES.items()
    }
    return Company.name, of.venue_id, Venue.name, of.kind, of.ref, case(names, value=of.kind)


def _filtered(
    query: Select[*tuple[Any, ...]],
    of: type[Statistic] | type[VisitStatistic],
    choice: StatisticFilter,
) -> Select[*tuple[Any, ...]]:
    query = (
        query.outerjoin(Venue, Venue.id == of.venue_id)
        .outerjoin(Company, Company.id == Venue.company_id)
        .where(of.day.between(choice.first, choice.last))
    )
    if choice.kind is not None:
        query = query.where(of.kind == choice.kind)
    if choice.company is not None:
        query = query.where(Company.id == choice.company)
    if choice.venue is not None:
        query = query.where(_is_venue(choice.venue))
    return query


def _is_venue(name_or_id: str | int) -> ColumnElement[bool]:
    if isinstance(name_or_id, int):
        return Venue.id == name_or_id
    named = Venue.name == name_or_id
    return or_(named, Venue.id == int(name_or_id)) if is_id(name_or_id) else named


_FIGURES = (
    func.sum(Statistic.detections, type_=Integer).label("detections"),
    func.sum(Statistic.place_detections, type_=Integer).label("place_detections"),
    # A device counts once a day and record.
    func.sum(Statistic.devices, type_=Integer).label("device_days"),
    func.sum(Statistic.notifications, type_=Integer).label("notifications"),
)


async def day_totals(
    session: AsyncSession, choice: StatisticFilter, number: int | None
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Sums by day of the records of a kind, or of one record. Raises SQLAlchemyError."""
    query = _filtered(select(Statistic.day, *_FIGURES), Statistic, choice)
    if number is not None:
        query = query.where(Statistic.ref == number)
    query = query.group_by(Statistic.day).order_by(Statistic.day)
    return (await session.execute(with_deleted(query))).all()


async def record_totals(
    session: AsyncSession, choice: StatisticFilter, limit: int
) -> Sequence[Row[*tuple[Any, ...]]]:
    """The records of a kind with the largest figures. Raises SQLAlchemyError."""
    of, kind = Statistic, choice.kind or "venue"
    named = aliased(_TABLES[kind])
    by = func.sum(of.notifications if kind == "campaign" else of.detections + of.place_detections)
    columns = (of.venue_id, Venue.name.label("venue"), of.kind, of.ref.label("id"), named.name)
    query = _filtered(select(*columns, *_FIGURES), of, choice)
    query = query.outerjoin(named, named.id == of.ref).group_by(*columns)
    query = query.order_by(by.desc(), of.ref).limit(limit)
    return (await session.execute(with_deleted(query))).all()


class VisitTotals(NamedTuple):
    """The visits of a venue, beacon or geofence that began on some days.

    `seconds` is the sum of the lengths of those that have `ended`. `lengths` counts these by the
    minutes at which their class begins. `open` visits go on; they began today or yesterday.
    """

    company: str | None
    venue_id: int
    venue: str | None
    kind: str
    id: int
    name: str | None
    visits: int
    ended: int
    seconds: int
    open: int
    lengths: dict[int, int]


async def visit_totals(
    session: AsyncSession,
    choice: StatisticFilter,
    *,
    now: datetime,
    limit: int | None = None,
) -> list[VisitTotals]:
    """The most visited places first; `now` is in UTC. Raises SQLAlchemyError."""
    of = VisitStatistic
    # The local yesterday of every venue. A visit whose exit is never published is open no longer.
    recent = of.day >= now.date() - timedelta(days=2)
    counted = [of.begun, of.ended, of.seconds, case((recent, of.begun - of.ended), else_=0)]
    counted += [case((of.minutes == each, of.ended), else_=0) for each in LENGTHS]
    sums = [func.sum(each) for each in counted]
    *names, name = _named(of)
    query = _filtered(select(*names, name, *sums), of, choice)
    query = query.group_by(*names).order_by(sums[0].desc(), of.kind, of.ref).limit(limit)
    found = []
    for row in await session.execute(with_deleted(query)):
        begun, ended, seconds, going_on, *counts = map(int, row[6:])  # PostgreSQL's are decimal
        by_length = dict(zip(LENGTHS, counts, strict=True))
        figures = begun, ended, seconds, max(0, going_on), by_length
        found.append(VisitTotals._make((*row[:6], *figures)))
    return found
