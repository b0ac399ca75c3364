"""Pages of a list: so many records each, and an address that goes on behind the last one."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

from api.console.visit import Visit

RECORDS_A_PAGE = 50


class RecordPage(NamedTuple):
    """The records of one page; `next_address` leads on, and is empty on the last one."""

    records: list[dict[str, Any]]
    next_address: str
    is_first: bool


async def record_page(
    visit: Visit, path: str, *, by: str = "after", size: int = RECORDS_A_PAGE, **query: object
) -> RecordPage:
    """A page of what an operation lists, from where the address says. Raises RefusedError.

    One record more than is shown says whether there is another page.
    """
    place = visit.count(by)
    begin = place or (2**63 - 1 if by == "before" else 0)
    found = await visit.interface.read(path, **query, **{by: begin, "limit": size + 1})
    shown = found[:size]
    if len(found) <= size:
        return RecordPage(shown, "", not place)
    kept = {name: value for name, value in visit.request.query_params.items() if name != by}
    address = f"{visit.request.url.path}?{urlencode(kept | {by: shown[-1]['id']})}"
    return RecordPage(shown, address, not place)
