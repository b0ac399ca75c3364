"""Campaigns and instants that meet: around boundaries, midnights and changes of the clock."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from rules.model import CampaignSnapshot
from tests.rules.records import campaign

DAY = 86_400
ZONES = (
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "America/Santiago",
    "America/Asuncion",
    "Asia/Kolkata",
    "Asia/Beirut",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/St_Johns",
    "Pacific/Apia",
    "Pacific/Chatham",
    None,
)
OFFSETS = tuple(
    timezone(timedelta(minutes=minutes)) for minutes in (-720, -210, -300, 0, 60, 330, 345, 840)
)
MINUTES = (0, 1, 59, 60, 89, 90, 119, 120, 121, 150, 180, 181, 720, 1320, 1380, 1410, 1439)
NUDGES = (-DAY, -7200, -3601, -3600, -1801, -1, 0, 1, 1799, 1800, 3599, 3600, 7199, DAY - 1, DAY)

WHOLES = (True, True, False)


def one_of_each(*choices: Iterable[Any]) -> st.SearchStrategy[Any]:
    """One of each in a single draw, because draws are what takes Hypothesis its time."""
    return st.sampled_from(list(product(*choices)))


zones = st.sampled_from(ZONES)
fractions = st.sampled_from((0.0, 0.0, 0.25, 0.999))
nudges = st.sampled_from(NUDGES) | st.integers(-3 * DAY, 3 * DAY)
wholes = st.sampled_from(WHOLES)
forms_of_dates = one_of_each((0, 0, 0, -400 * DAY, 400 * DAY), OFFSETS, WHOLES)


@lru_cache(maxsize=1000)
def clock_changes(zone: str, year: int) -> tuple[float, ...]:
    """The seconds at which the clock of a zone jumps in a year: never twice in a day."""
    tz, found = ZoneInfo(zone), []
    day = datetime(year, 1, 1, tzinfo=UTC)
    while day.year == year:
        following = day + timedelta(days=1)
        if day.astimezone(tz).utcoffset() != following.astimezone(tz).utcoffset():
            found.append(_minute_of_change(day, tz))
        day = following
    return tuple(found)


def _minute_of_change(moment: datetime, tz: tzinfo) -> float:
    before, minute = moment.astimezone(tz).utcoffset(), timedelta(minutes=1)
    for step in (timedelta(hours=1), minute):
        while (moment + step).astimezone(tz).utcoffset() == before:
            moment += step
    return (moment + minute).timestamp()


@st.composite
def anchors(draw: st.DrawFn, zone: str | None) -> int:
    """An instant (epoch seconds) worth looking at: mostly a change of the zone's clock."""
    year = draw(st.integers(2005, 2032) | st.just(2011))
    changes = clock_changes(zone, year) if zone else ()
    usual = draw(wholes)
    if usual and changes:
        return int(draw(st.sampled_from(changes)))
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) + draw(st.integers(0, 365 * DAY))


@st.composite
def dates(draw: st.DrawFn, near: int, tz: tzinfo) -> datetime:
    """A start or an end in the days around an instant, at midnight as written more often."""
    far, offset, whole = draw(forms_of_dates)
    written = datetime.fromtimestamp(near + far + draw(nudges), tz).replace(tzinfo=offset)
    return written.replace(hour=0, minute=0, second=0) if whole else written


MOMENTS = (*[("detection", None)] * 6, ("enter", None), ("dwell", 5), ("exit", None))
kinds = one_of_each(
    MOMENTS, (True,) * 6 + (False,), ("template", "connector"), (0, 1, 60, 3600), WHOLES, WHOLES
)
minutes = st.sampled_from(MINUTES) | st.integers(0, 1439)


@st.composite
def campaigns(draw: st.DrawFn, zone: str | None, near: int, number: int = 1) -> CampaignSnapshot:
    """A campaign of that zone whose dates and hours lie around an instant."""
    tz = ZoneInfo(zone) if zone else UTC
    (on, dwell_minutes), active, form, delay, begins_early, ends_late = draw(kinds)
    return campaign(
        id=number,
        active=active,
        format=form,
        start=draw(dates(near - (30 * DAY if begins_early else 0), tz)),
        end=draw(dates(near + (30 * DAY if ends_late else 0), tz)),
        start_minute=draw(minutes),
        end_minute=draw(minutes | st.just(1440)),
        weekdays=draw(st.just(127) | st.integers(0, 127)),
        delay=delay,
        time_zone=zone,
        on=on,
        dwell_minutes=dwell_minutes,
    )


@st.composite
def instants(draw: st.DrawFn, near: int, of: CampaignSnapshot) -> float:
    """An instant around an anchor, or around a boundary of a campaign."""
    tz = ZoneInfo(of.time_zone) if of.time_zone else of.start.tzinfo
    midnight = datetime.fromtimestamp(near, tz).replace(hour=0, minute=0, second=0)
    boundaries = [
        float(near),
        of.start.timestamp(),
        of.end.timestamp(),
        midnight.timestamp(),
        (midnight + timedelta(minutes=of.start_minute)).timestamp(),
        (midnight + timedelta(minutes=of.end_minute)).timestamp(),
        (of.end.replace(tzinfo=tz) + timedelta(minutes=of.end_minute)).timestamp(),
    ]
    return draw(st.sampled_from(boundaries)) // 1 + draw(nudges) + draw(fractions)
