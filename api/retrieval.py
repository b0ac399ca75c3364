"""Answers with records: one, or a list that is sent page by page as it is read."""

from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import Query
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response, StreamingResponse

from api.answers import JSON, answer
from api.permissions import AuthorizedCaller
from api.records.page import Page, ReadPage, Where, fetch_one
from api.tenancy import require_venue
from catalog.fields.values import INT64

Limit = Annotated[
    Annotated[int, Field(ge=1, le=INT64)] | SkipJsonSchema[None],
    Query(description="The most records of the answer; default: all."),
]
After = Annotated[
    int,
    Query(
        ge=0,
        le=INT64,
        description="Only records with a greater id: the last id of the previous page.",
    ),
]

PAGE = 500


async def one(caller: AuthorizedCaller, read: ReadPage, where: Where, what: str) -> Response:
    """The only record that `read` finds. Raises ApiError 404."""
    async with caller.services.database.autocommit() as session:
        return answer(await fetch_one(session, read, where, what))


async def listed(
    caller: AuthorizedCaller,
    read: ReadPage,
    where: Where,
    *,
    after: int,
    limit: int | None,
    venue_id: int | None = None,
    page: int = PAGE,
) -> Response:
    """A JSON array of the records that `read` finds, `page` at a time, in order of id.

    At most one page is in memory, and each page has a short transaction of its own. Raises the
    errors of `read` for the first page, and 404 if no record is found because the company has no
    venue `venue_id`. An error in a later page ends the connection, so that a client cannot take a
    part of the list for the whole.
    """
    pages = _pages(caller, read, where, after, limit, venue_id, page)
    first, is_last = await anext(pages)
    if is_last:
        return Response(first, media_type=JSON)
    return StreamingResponse(_joined(first, pages), media_type=JSON)


async def _pages(
    caller: AuthorizedCaller,
    read: ReadPage,
    where: Where,
    after: int,
    left: int | None,
    venue_id: int | None,
    page: int,
) -> AsyncIterator[tuple[bytes, bool]]:
    """Each page as a JSON array, and whether it is the last."""
    is_last = False
    while not is_last:
        size = page if left is None else min(page, left)
        async with caller.services.database.autocommit() as session:
            records = await read(session, where, Page(after, size))
            if not records and venue_id is not None:
                await require_venue(session, caller.company_id, venue_id)
        if left is not None:
            left -= len(records)
        is_last = len(records) < size or left == 0
        after = records[-1]["id"] if records else after
        yield orjson.dumps(records), is_last


async def _joined(first: bytes, pages: AsyncIterator[tuple[bytes, bool]]) -> AsyncIterator[bytes]:
    yield first[:-1]
    async for records, _ in pages:
        if records != b"[]":
            yield b"," + records[1:-1]
    yield b"]"
