"""Explains in words why a campaign of the demo did not fire."""

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


class DemoCampaign(NamedTuple):
    """A campaign and the beacons that it targets."""

    campaign: CampaignSnapshot
    beacons: Sequence[BeaconSnapshot]


def silence_reason(silent: DemoCampaign, at: float) -> str:
    """Why a campaign sent nothing around `at` (epoch s), by the rules' own verdict."""
    campaign, beacons = silent
    reason = Schedule(campaign).verdict(at).reason
    if reason is not None:
        return _closed_reason(campaign, reason, at)
    if not beacons:
        return "it is aimed at no beacon"
    active = [beacon for beacon in beacons if beacon.active]
    if not active:
        names = ", ".join(beacon.name for beacon in beacons)
        if len(beacons) == 1:
            return f"its only beacon ({names}) is switched off"
        return f"all its beacons ({names}) are switched off"
    reach = max(beacon.reach for beacon in active)
    return f"no phone came {reach.name.lower()} enough to its beacons"


def _closed_reason(campaign: CampaignSnapshot, reason: Reason, at: float) -> str:
    zone = None if campaign.time_zone is None else ZoneInfo(campaign.time_zone)
    here = datetime.fromtimestamp(at, zone)
    if reason is Reason.INACTIVE:
        return "it is switched off"
    if reason is Reason.NOT_STARTED:
        return f"it begins on {campaign.start:%Y-%m-%d}"
    if reason is Reason.ENDED:
        return f"it ended on {campaign.end:%Y-%m-%d}"
    if reason is Reason.WRONG_WEEKDAY:
        open_days = (day for bit, day in enumerate(WEEKDAYS) if campaign.weekdays >> bit & 1)
        days = [day.title()[:3] for day in open_days]
        return f"it is {here:%A}; runs on {', '.join(days)}"
    begin, end = _clock(campaign.start_minute), _clock(campaign.end_minute)
    return f"it runs from {begin} to {end}; it is {here:%H:%M}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
