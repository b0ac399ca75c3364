"""When a campaign is open, by brute force, from the text of the contract alone.

It shares nothing with `rules.schedule`: it writes out the windows of yesterday and today as
naive wall times, looks whether the wall clock shows a time inside one, and finds the last
second of a day by trying.
"""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from rules.model import CampaignSnapshot, Reason

ONE_DAY = timedelta(days=1)


def verdict(campaign: CampaignSnapshot, t: float) -> Reason | None:
    """The first check that fails at `t` (epoch seconds), None when the campaign is open."""
    if not campaign.active:
        return Reason.INACTIVE
    zone = zone_of(campaign)
    instant = whole_second(datetime.fromtimestamp(t, UTC))
    wall = instant.astimezone(zone).replace(tzinfo=None)
    opened = opening_day(campaign, wall)
    day = opened or wall.date()
    # In a window opened yesterday, the dates are those of yesterday, as it ended.
    moment = instant if day == wall.date() else last_second_of(day, zone)
    if moment < whole_second(campaign.start):
        return Reason.NOT_STARTED
    if moment > last_moment(campaign, zone):
        return Reason.ENDED
    if campaign.weekdays & (2 ** day.weekday()) == 0:
        return Reason.WRONG_WEEKDAY
    return Reason.OUTSIDE_HOURS if opened is None else None


def is_within(hours: dict[str, Any], zone: str, second: int) -> bool:
    """Whether quiet hours, as the interface has them, hold in that second (epoch s)."""
    wall = datetime.fromtimestamp(second, ZoneInfo(zone)).replace(tzinfo=None)
    midnight, (opens, closes) = (
        time(),
        (time.fromisoformat(hours[each]) for each in ("start", "end")),
    )
    for day in (wall.date(), wall.date() - ONE_DAY):
        begin, end = datetime.combine(day, opens), datetime.combine(day, closes)
        if opens >= closes:
            end += ONE_DAY
        if opens == closes:
            begin, end = (datetime.combine(each, midnight) for each in (day, day + ONE_DAY))
        if begin <= wall < end:
            names = hours.get("weekdays")
            return names is None or f"{day:%A}".lower() in names
    return False


def zone_of(campaign: CampaignSnapshot) -> tzinfo:
    """The zone in which a campaign's local time is read."""
    if campaign.time_zone is not None:
        return ZoneInfo(campaign.time_zone)
    assert campaign.start.tzinfo is not None
    return campaign.start.tzinfo


def whole_second(moment: datetime) -> datetime:
    """The moment without its fraction of a second."""
    return moment.replace(microsecond=0)


def opening_day(campaign: CampaignSnapshot, wall: datetime) -> date | None:
    """The day on which the window opened that this wall time lies in, if any."""
    for day in (wall.date(), wall.date() - ONE_DAY):
        midnight = datetime.combine(day, time())
        opens = midnight + timedelta(minutes=campaign.start_minute)
        closes = midnight + timedelta(minutes=campaign.end_minute)
        if campaign.start_minute == campaign.end_minute:
            opens, closes = midnight, midnight + ONE_DAY
        elif campaign.start_minute > campaign.end_minute:
            closes += ONE_DAY
        if opens <= wall < closes:
            return day
    return None


def last_moment(campaign: CampaignSnapshot, zone: tzinfo) -> datetime:
    """The last second of a campaign."""
    end = whole_second(campaign.end)
    return last_second_of(end.date(), zone) if end.time() == time() else end


@lru_cache(maxsize=10_000)
def last_second_of(day: date, zone: tzinfo) -> datetime:
    """The last second at which clocks of the zone show this day (or an earlier one).

    Tried backwards from long after: by the hour, then by the minute, then by the second.
    """
    moment = datetime.combine(day + 2 * ONE_DAY, time(18), UTC)
    for step in (timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)):
        while moment.astimezone(zone).date() > day:
            moment -= step
        moment += step
    return moment - timedelta(seconds=1)
