"""Lists: pages read by id, one short transaction each, and sent as they come."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

import orjson
from fastapi import Query
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response, StreamingResponse

from api.answers import JSON
from api.records.page import Page, Record
from catalog.database import Database
from catalog.fields.values import INT64

Limit = Annotated[
    Annotated[int, Field(ge=1, le=INT64)] | SkipJsonSchema[None],
    Query(description="At most so many records; all when it is not given."),
]
After = Annotated[
    int, Query(ge=0, le=INT64, description="Only records whose id is greater: the last id seen.")
]
ReadPage = Callable[[AsyncSession, Page], Awaitable[list[Record]]]

PAGE = 500


async def listed(
    database: Database, read: ReadPage, *, after: int, limit: int | None, page: int = PAGE
) -> Response:
    """An array of what `read` finds, `page` records at a time, in order of id.

    No more than one page is in memory. Raises what `read` raises for the first page; a fault in
    a later one ends the connection, so that nobody takes half a list for the whole.
    """
    pages = _Pages(database, read, after=after, left=limit, size=page)
    first = await pages.next()
    if first is None or pages.ended:
        return Response(first or b"[]", media_type=JSON)
    return StreamingResponse(_joined(first, pages), media_type=JSON)


class _Pages:
    def __init__(
        self, database: Database, read: ReadPage, *, after: int, left: int | None, size: int
    ) -> None:
        self._database = database
        self._read = read
        self._after = after
        self._left = left
        self._size = size
        self.ended = False

    async def next(self) -> bytes | None:
        """The next page as a JSON array, or None when there is none."""
        if self.ended:
            return None
        size = self._size if self._left is None else min(self._size, self._left)
        async with self._database.autocommit() as session:
            records = await self._read(session, Page(self._after, size))
        if self._left is not None:
            self._left -= len(records)
        self.ended = len(records) < size or self._left == 0
        if not records:
            return None
        self._after = records[-1]["id"]
        return orjson.dumps(records)


async def _joined(first: bytes, pages: _Pages) -> AsyncIterator[bytes]:
    yield first[:-1]
    while (page := await pages.next()) is not None:
        yield b"," + page[1:-1]
    yield b"]"
