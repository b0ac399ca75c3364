"""The audit page: who changed what."""

from starlette.responses import Response

from api.console.context import PageContext
from api.console.pages.listing import record_page


async def show(context: PageContext) -> Response:
    """Show the changes, the newest first."""
    return context.page("audit.html", found=await record_page(context, "/audit", by="before"))


PAGES = (("GET", "/audit", show),)
