"""The live page: it polls for new decisions once a second while it is visible."""

from starlette.responses import JSONResponse, Response

from api.console.context import PageContext
from rules.model import Reason

_FILTERS = ("after", "lieu", "campaign", "reason")
_VENUES = 500


async def show(context: PageContext) -> Response:
    """Show the empty page, which the script fills."""
    venues = (
        await context.interface.get("/region", limit=_VENUES) if context.may_read("venue") else []
    )
    return context.page(
        "live.html",
        venues=venues,
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


PAGES = (("GET", "/live", show), ("GET", "/live/feed", feed))
