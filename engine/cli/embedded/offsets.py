"""The embedded broker forgets its topics; what a kept database knows of them must go too."""

from datetime import UTC, datetime

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import open_database
from catalog.models import RecorderOffset, ReplacedTopic

# Not a topic: this row says that the offsets beside it are of an embedded broker.
_MARK = "(embedded)"


async def forget_offsets(database_url: str) -> None:
    """Forget how far the recorder was on an embedded broker that is no more.

    Offsets without the mark are of a real broker and stay: the recorder then says that they do
    not fit. Raises SQLAlchemyError or OSError.
    """
    database = open_database(database_url)
    try:
        async with database.write.begin() as session:
            if await session.get(RecorderOffset, (_MARK, 0)) is not None:
                await _note_the_past(session)
                await session.execute(delete(RecorderOffset).where(RecorderOffset.topic != _MARK))
            elif not await session.scalar(select(func.count()).select_from(RecorderOffset)):
                mark = {"topic": _MARK, "partition": 0, "next_offset": 0}
                await session.execute(insert(RecorderOffset).values(mark))
    finally:
        await database.close()


async def _note_the_past(session: AsyncSession) -> None:
    """What the topics of that broker added to SQL's figures stays: `verify` has to know."""
    recorded = set(await session.scalars(select(RecorderOffset.topic))) - {_MARK}
    new = recorded - set(await session.scalars(select(ReplacedTopic.topic)))
    now = datetime.now(UTC)
    session.add_all(ReplacedTopic(topic=topic, ended_on=now) for topic in new)
