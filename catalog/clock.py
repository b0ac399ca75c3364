"""The time by the database's clock, which all processes share."""

from datetime import datetime

from sqlalchemy import func, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.models.base import Instant

_NOW = select(type_coerce(func.current_timestamp(), Instant))


async def sql_now(session: AsyncSession) -> datetime:
    """When the session's transaction began, or its statement where it has none; aware, in UTC."""
    now: datetime = (await session.execute(_NOW)).scalar_one()
    return now
