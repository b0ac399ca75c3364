"""Reasons in words."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from catalog.models import WEEKDAYS
from rules.model import BeaconSnapshot, CampaignSnapshot, Reason
from rules.schedule import Schedule

WORDS = {
    Reason.GRANTED: "a campaign fired",
    Reason.THROTTLED: "held back, within the cache delay",
    Reason.TOO_FAR: "farther than the beacon reacts to",
    Reason.UNKNOWN_PROXIMITY: "no usable signal strength",
    Reason.NO_CAMPAIGN: "no campaign at this beacon",
    Reason.INACTIVE_BEACON: "the beacon is switched off in the catalog",
    Reason.INACTIVE_VENUE: "the venue is switched off in the catalog",
    Reason.UNKNOWN_BEACON: "not a beacon of the catalog",
    Reason.INACTIVE: "its campaign is switched off",
    Reason.NOT_STARTED: "its campaign has not begun",
    Reason.ENDED: "its campaign is over",
    Reason.WRONG_WEEKDAY: "its campaign does not run today",
    Reason.OUTSIDE_HOURS: "its campaign does not run at this hour",
    Reason.NO_CONNECTOR: "its company has set no connector up",
    Reason.STALE: "too old to send anything",
    Reason.FUTURE: "from the future",
}


class Entry(NamedTuple):
    """A campaign and the beacons that it is aimed at."""

    campaign: CampaignSnapshot
    beacons: Sequence[BeaconSnapshot]


def why_silent(entry: Entry, at: float) -> str:
    """Why a campaign that sent nothing around `at` (epoch s) did not: the rules' own verdict."""
    reason = Schedule(entry.campaign).verdict(at).reason
    if reason is not None:
        return _why_closed(entry.campaign, reason, at)
    if not entry.beacons:
        return "it is aimed at no beacon"
    active = [beacon for beacon in entry.beacons if beacon.active]
    if not active:
        names = ", ".join(beacon.name for beacon in entry.beacons)
        which = "its only beacon" if len(entry.beacons) == 1 else "all its beacons"
        return f"{which} ({names}) {'is' if len(entry.beacons) == 1 else 'are'} switched off"
    reach = max(beacon.reach for beacon in active)
    return f"no phone came {reach.name.lower()} enough to its beacons"


def _why_closed(campaign: CampaignSnapshot, reason: Reason, at: float) -> str:
    here = datetime.fromtimestamp(at, _zone(campaign))
    if reason is Reason.INACTIVE:
        return "it is switched off"
    if reason is Reason.NOT_STARTED:
        return f"it begins on {campaign.start:%Y-%m-%d}"
    if reason is Reason.ENDED:
        return f"it ended on {campaign.end:%Y-%m-%d}"
    if reason is Reason.WRONG_WEEKDAY:
        open_ = enumerate(WEEKDAYS)
        days = [day.title()[:3] for bit, day in open_ if campaign.weekdays >> bit & 1]
        return f"it is {here:%A}; runs on {', '.join(days)}"
    begin, end = _clock(campaign.start_minute), _clock(campaign.end_minute)
    return f"it runs from {begin} to {end}; it is {here:%H:%M}"


def _zone(campaign: CampaignSnapshot) -> ZoneInfo | None:
    return None if campaign.time_zone is None else ZoneInfo(campaign.time_zone)


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
