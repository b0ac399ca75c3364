"""Decides which campaigns have their content in the index: those that can fire now or soon.

Redis holds the index of all companies in memory. When Redis is full, it refuses the claims of all
companies. So a campaign that is inactive, at an inactive venue or far from its dates is in the
index with its schedule alone. The decision and its reason stay the same, and no content is needed.

The margins are wide. The content is in the index long before the start, because SQL may be down for
days, and long after the end, because detections may arrive late.
"""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, String, and_, cast, insert, literal, or_, select

from catalog.database import Database, sql_now
from catalog.models import Campaign, IndexState, Outbox

BEFORE_START = timedelta(days=10)
AFTER_END = timedelta(days=10)  # longer than MAX_DETECTION_AGE, an offset and a whole day
DATE_CHECK_INTERVAL = timedelta(minutes=10)


def may_fire(
    *, active: bool, venue_active: bool, start: datetime, end: datetime, now: datetime
) -> bool:
    """Whether a campaign's entry needs its content at `now`."""
    return active and venue_active and now >= start - BEFORE_START and now <= end + AFTER_END


async def enqueue_date_changes(database: Database) -> bool:
    """Put campaigns into the outbox whose need of content has changed with the date.

    One of all processes does this every 10 minutes. Returns whether this call did. Raises
    SQLAlchemyError, OSError or TimeoutError.
    """
    async with database.autocommit() as session:
        now = await sql_now(session)
        swept_at = await session.scalar(select(IndexState.swept_at))
    if swept_at is not None and now - swept_at < DATE_CHECK_INTERVAL:
        return False
    async with database.write.begin() as session:
        state = (
            await session.scalars(select(IndexState).with_for_update(skip_locked=True))
        ).one_or_none()
        if state is None or state.swept_at != swept_at:
            return False  # another process is writing the index, or has done this
        now = await sql_now(session)
        if swept_at is not None:  # without it the index is new: a migration had it rebuilt
            ref = cast(Campaign.id, String)
            due = select(literal("campaign"), ref).where(_changes_between(swept_at, now))
            await session.execute(insert(Outbox).from_select(["kind", "ref"], due))
        state.swept_at = now
    return True


def _changes_between(since: datetime, until: datetime) -> ColumnElement[bool]:
    """Campaigns for which the date alone changes `may_fire` after `since`, up to `until`."""
    begins = and_(
        Campaign.start_at > since + BEFORE_START, Campaign.start_at <= until + BEFORE_START
    )
    ends = and_(Campaign.end_at >= since - AFTER_END, Campaign.end_at < until - AFTER_END)
    return or_(begins, ends)
