"""Brings into the index what changes by time alone: content that is needed soon, or no more."""

from datetime import timedelta

from sqlalchemy import String, cast, insert, literal, select

from catalog.clock import sql_now
from catalog.database import Database
from catalog.index.content import changes_between
from catalog.models import Campaign, IndexState, Outbox

EVERY = timedelta(minutes=10)


async def sweep(database: Database) -> bool:
    """Note campaigns for the outbox, every 10 minutes, whoever comes first; whether this did.

    Raises SQLAlchemyError, OSError or TimeoutError.
    """
    async with database.autocommit() as session:
        now = await sql_now(session)
        swept_at = await session.scalar(select(IndexState.swept_at))
    if swept_at is not None and now - swept_at < EVERY:
        return False
    async with database.write.begin() as session:
        state = (
            await session.scalars(select(IndexState).with_for_update(skip_locked=True))
        ).one_or_none()
        if state is None or state.swept_at != swept_at:
            return False  # a writer is at it, or another process has swept
        now = await sql_now(session)
        if swept_at is not None:
            # What is swept for the first time was just built: a migration saw to that.
            ref = cast(Campaign.id, String)
            due = select(literal("campaign"), ref).where(changes_between(swept_at, now))
            await session.execute(insert(Outbox).from_select(["kind", "ref"], due))
        state.swept_at = now
    return True
