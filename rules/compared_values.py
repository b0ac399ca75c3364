"""Puts the two values that a check compares into words: the value found, and the value needed."""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from rules.local_time import LocalClock
from rules.model import CampaignSnapshot, Reason, Zone
from rules.schedule import Occasion, Schedule

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EVERY_DAY = 0b1111111
_UNITS = (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_UP_TO = {Zone.FAR: "far or nearer", Zone.NEAR: "near or nearer", Zone.IMMEDIATE: "immediate"}
_ACTIVE = {True: "active", False: "inactive"}


class ComparedValues(NamedTuple):
    """The value that a check found, and the value with which the check passes."""

    found: str
    needed: str


def duration_text(seconds: float) -> str:
    """The two largest units, rounded up to whole seconds: "13 min 32 s"."""
    left = max(0, ceil(seconds))
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts[:2]) or "0 s"


def compared_beacon(known: bool) -> ComparedValues:
    """Whether the catalog has the beacon."""
    return ComparedValues("known" if known else "unknown", "a beacon of the catalog")


def compared_activity(active: bool) -> ComparedValues:
    """Whether a record is active."""
    return ComparedValues(_ACTIVE[active], "active")


def compared_campaigns(count: int) -> ComparedValues:
    """How many campaigns a beacon has."""
    return ComparedValues(
        f"{count or 'no'} campaign{'' if count == 1 else 's'}", "a campaign that targets the beacon"
    )


def compared_target(aimed: bool) -> ComparedValues:
    """Whether one campaign targets a beacon."""
    return ComparedValues(
        "targeted" if aimed else "not targeted", "a beacon that the campaign names, or its tag"
    )


def compared_zone(zone: Zone) -> ComparedValues:
    """Whether the proximity is known."""
    return ComparedValues(zone.name.lower(), "immediate, near or far")


def compared_reach(zone: Zone, reach: Zone) -> ComparedValues:
    """Whether the device is near enough."""
    return ComparedValues(zone.name.lower(), _UP_TO[reach])


def compared_age(seconds: float, most: float) -> ComparedValues:
    """How old the detection is."""
    return ComparedValues(f"{duration_text(seconds)} old", f"at most {duration_text(most)}")


def compared_lead(seconds: float, most: float) -> ComparedValues:
    """How far the detection is ahead of the engine's clock."""
    return ComparedValues(f"{duration_text(seconds)} ahead", f"at most {duration_text(most)}")


def compared_schedule(
    campaign: CampaignSnapshot, schedule: Schedule, occasion: Occasion
) -> Mapping[Reason, ComparedValues]:
    """The values that the checks of a schedule compare, by reason."""
    clock = schedule.clock
    weekday = WEEKDAYS[occasion.weekday]
    opened = " (the window opened the day before)" if occasion.carried else ""
    return {
        Reason.INACTIVE: compared_activity(campaign.active),
        Reason.NOT_STARTED: ComparedValues(
            clock.written(occasion.moment), f"from {clock.written(schedule.start)} on"
        ),
        Reason.ENDED: ComparedValues(
            clock.written(occasion.moment), f"until {clock.written(schedule.end)}"
        ),
        Reason.WRONG_WEEKDAY: ComparedValues(weekday + opened, _days(campaign.weekdays)),
        Reason.OUTSIDE_HOURS: ComparedValues(_wall(campaign, clock, occasion), _hours(campaign)),
    }


def compared_content() -> ComparedValues:
    """A campaign is open, and its content is not in the index yet."""
    return ComparedValues("its content is not in the index yet", "its content")


def compared_connector(has_connector: bool) -> ComparedValues:
    """Whether the company has a connector."""
    found = "set up" if has_connector else "none set up"
    return ComparedValues(found, "a connector of the company")


def compared_claim(
    campaign: CampaignSnapshot, clock: LocalClock, held: float | None, detected_at: float
) -> ComparedValues:
    """When the campaign was last sent to the device, and how often it may be sent."""
    if not campaign.delay:
        return ComparedValues("no cache delay", "no cache delay")
    needed = f"at least {duration_text(campaign.delay)} between two sends"
    if held is None:
        return ComparedValues("no claim", needed)
    left = held + campaign.delay - detected_at
    ends = f"{duration_text(left)} left" if left > 0 else "that is over"
    return ComparedValues(f"claimed at {clock.written(held)}, {ends}", needed)


def _days(mask: int) -> str:
    if mask & _EVERY_DAY == _EVERY_DAY:
        return "every day"
    return ", ".join(day for bit, day in enumerate(WEEKDAYS) if mask >> bit & 1) or "no day"


def _hours(campaign: CampaignSnapshot) -> str:
    if campaign.start_minute == campaign.end_minute:
        return "the whole day"
    return f"{_time(campaign.start_minute)} to {_time(campaign.end_minute)}"


def _wall(campaign: CampaignSnapshot, clock: LocalClock, occasion: Occasion) -> str:
    """Friday 22:41 in Europe/Paris."""
    day = (occasion.weekday + occasion.carried) % len(WEEKDAYS)
    minute = _time(occasion.second_of_day // 60)
    if campaign.time_zone is not None:
        return f"{WEEKDAYS[day]} {minute} in {campaign.time_zone}"
    return f"{WEEKDAYS[day]} {minute} at {clock.written(occasion.moment)[-5:]}"


def _time(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
