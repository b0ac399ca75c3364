"""Who changed what."""

from starlette.responses import Response

from api.console.pages.listing import record_page
from api.console.visit import Visit


async def show(visit: Visit) -> Response:
    """The changes, the newest first."""
    return visit.page("audit.html", found=await record_page(visit, "/audit", by="before"))


PAGES = (("GET", "/audit", show),)
