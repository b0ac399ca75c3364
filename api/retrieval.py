"""Answers with records: one, or a list that is sent page by page as it is read."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, NamedTuple

import orjson
from fastapi import Query
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response, StreamingResponse

from api.answers import JSON, answer
from api.permissions import AuthorizedCaller
from api.records.page import Page, RecordKind
from api.tenancy import require_venue
from catalog.fields.values import INT64
from catalog.reading import Reader, read

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


async def one(caller: AuthorizedCaller, kind: RecordKind, **values: object) -> Response:
    """The caller's company's record of the kind. Raises ApiError 404."""
    company = caller.company_id
    found = await read(
        caller.services.database, lambda reader: kind.one(reader, company=company, **values)
    )
    return answer(found)


async def listed(
    caller: AuthorizedCaller,
    kind: RecordKind,
    *,
    after: int,
    limit: int | None,
    page: int = PAGE,
    **values: object,
) -> Response:
    """A JSON array of the company's records of the kind, `page` at a time, in order of id.

    `values` are the parameters of the kind. At most one page is in memory, and each page is read by
    itself. Raises the errors of SQL for the first page, and 404 if no record is found because the
    company has no such `venue`. An error in a later page ends the connection, so that a client
    cannot take a part of the list for the whole.
    """
    pages = _pages(caller, kind, values, after, limit, page)
    first, is_last = await anext(pages)
    if is_last:
        return Response(first, media_type=JSON)
    return StreamingResponse(_joined(first, pages), media_type=JSON)


async def _pages(
    caller: AuthorizedCaller,
    kind: RecordKind,
    values: dict[str, object],
    after: int,
    left: int | None,
    page: int,
) -> AsyncIterator[tuple[bytes, bool]]:
    """Each page as a JSON array, and whether it is the last."""
    is_last = False
    while not is_last:
        size = page if left is None else min(page, left)
        found = await read(
            caller.services.database,
            partial(_page, caller.company_id, kind, values, Page(after, size)),
        )
        if left is not None:
            left -= found.records
        is_last = found.records < size or left == 0
        after = found.last
        yield found.content, is_last


class _Written(NamedTuple):
    """A page as a JSON array, the number of its records, and the id of the last one."""

    content: bytes
    records: int
    last: int


def _page(
    company_id: int, kind: RecordKind, values: dict[str, object], page: Page, reader: Reader
) -> _Written:
    """Read and write a page: many requests may wait for their connections to close, or for slow
    readers, and each of them holds the bytes only."""
    records = kind.page(reader, page, company=company_id, **values)
    if not records and "venue" in values:
        require_venue(reader, company_id, values["venue"])
    last = records[-1]["id"] if records else page.after
    return _Written(orjson.dumps(records), len(records), last)


async def _joined(first: bytes, pages: AsyncIterator[tuple[bytes, bool]]) -> AsyncIterator[bytes]:
    yield first[:-1]
    async for records, _ in pages:
        if records != b"[]":
            yield b"," + records[1:-1]
    yield b"]"
