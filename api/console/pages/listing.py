"""Pages of a list, with a link to the next page."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

from api.console.context import PageContext

RECORDS_A_PAGE = 50


class RecordPage(NamedTuple):
    """The records of one page; `next_address` is empty on the last one."""

    records: list[dict[str, Any]]
    next_address: str
    is_first: bool


async def record_page(
    context: PageContext,
    path: str,
    *,
    by: str = "after",
    size: int = RECORDS_A_PAGE,
    **query: object,
) -> RecordPage:
    """A page of the list that an operation returns. Raises RefusedError.

    The query parameter `by` says where the page begins. One record more than is shown is read, to
    see whether there is another page.
    """
    place = context.query_number(by)
    begin = place or (2**63 - 1 if by == "before" else 0)
    found = await context.interface.get(path, **query, **{by: begin, "limit": size + 1})
    shown = found[:size]
    if len(found) <= size:
        return RecordPage(shown, "", not place)
    others = {name: value for name, value in context.request.query_params.items() if name != by}
    address = f"{context.request.url.path}?{urlencode(others | {by: shown[-1]['id']})}"
    return RecordPage(shown, address, not place)
