"""What happens now and what was changed: the live page and the audit page."""

from starlette.responses import JSONResponse, Response

from api.console.context import PageContext
from rules.model import Reason

_FILTERS = ("after", "lieu", "campaign", "reason")


async def show_live(context: PageContext) -> Response:
    """Show the empty page, which the script fills."""
    return context.page(
        "live.html",
        venues=await context.venues(),
        reasons=[reason.value for reason in Reason],
        allowed=context.may_read("live decision"),
    )


async def feed(context: PageContext) -> Response:
    """New decisions as JSON, as the operation answers them, with translated reasons."""
    query = {name: context.query(name) for name in _FILTERS}
    reply = await context.interface.call("GET", "/realtime/decisions", query=query)
    if reply.is_success:
        for decision in reply.body["decisions"]:
            decision["reason_text"] = context.texts.get(f"reason_{decision['reason']}")
            for each in decision["campaigns"]:
                each["outcome_text"] = context.texts.get(f"reason_{each['outcome']}")
    return JSONResponse(reply.body, reply.status)


async def show_audit(context: PageContext) -> Response:
    """Show who changed what, the newest first."""
    return context.page("audit.html", found=await context.record_page("/audit", by="before"))


PAGES = (
    ("GET", "/live", show_live),
    ("GET", "/live/feed", feed),
    ("GET", "/audit", show_audit),
)
