"""Which campaigns carry their content in the index: those that can fire, or soon will.

Redis holds the index of all companies in memory, and refuses everybody's claims when it is full.
A campaign that is inactive, or at an inactive venue, or far from its dates, is in the index with
its schedule alone: the decision and its reason are the same, and nothing has to be sent.

The margins are wide. Content is there long before the start, should SQL be away when it is due,
and long after the end, for detections that come late.
"""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, or_

from catalog.models import Campaign

AHEAD = timedelta(days=10)
KEPT = timedelta(days=10)  # above MAX_DETECTION_AGE and what time zones and whole days add


def may_fire(
    *, active: bool, venue_active: bool, start: datetime, end: datetime, now: datetime
) -> bool:
    """Whether a campaign's entry needs its content at `now`."""
    return active and venue_active and now >= start - AHEAD and now <= end + KEPT


def changes_between(since: datetime, until: datetime) -> ColumnElement[bool]:
    """Campaigns for which `may_fire` changes by time alone after `since`, up to `until`."""
    wakes = and_(Campaign.start_at > since + AHEAD, Campaign.start_at <= until + AHEAD)
    sleeps = and_(Campaign.end_at >= since - KEPT, Campaign.end_at < until - KEPT)
    return or_(wakes, sleeps)
