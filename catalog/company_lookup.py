"""Finds the company that a user names on a command line."""

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.models import Company

_LONGEST_ID = 18  # digits that fit every database's integers


async def find_company(session: AsyncSession, wanted: str | int) -> Company | None:
    """The company for a number (its id) or a text (its name, else its id), or None."""
    conditions: list[ColumnElement[bool]] = []
    if isinstance(wanted, int):
        conditions.append(Company.id == wanted)
    else:
        conditions.append(Company.name == wanted)
        if wanted.isascii() and wanted.isdigit() and len(wanted) <= _LONGEST_ID:
            conditions.append(Company.id == int(wanted))
    for condition in conditions:
        found = await session.scalar(select(Company).where(condition))
        if found is not None:
            return found
    return None
