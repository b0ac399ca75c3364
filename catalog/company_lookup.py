"""Finds the company that a user names on a command line."""

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.models import Company

_LONGEST_ID = 18  # digits that fit every database's integers


async def find_company(session: AsyncSession, name_or_id: str | int) -> Company | None:
    """The company for a number (its id) or a text (its name, else its id), or None."""
    conditions: list[ColumnElement[bool]] = []
    if isinstance(name_or_id, int):
        conditions.append(Company.id == name_or_id)
    else:
        conditions.append(Company.name == name_or_id)
        if name_or_id.isascii() and name_or_id.isdigit() and len(name_or_id) <= _LONGEST_ID:
            conditions.append(Company.id == int(name_or_id))
    for condition in conditions:
        found = await session.scalar(select(Company).where(condition))
        if found is not None:
            return found
    return None
