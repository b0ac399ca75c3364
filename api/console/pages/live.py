"""Decisions as they happen: the page asks once a second while somebody looks at it."""

from starlette.responses import JSONResponse, Response

from api.console.visit import Visit
from rules.model import Reason

_FILTERS = ("after", "lieu", "campaign", "reason")
_VENUES = 500


async def show(visit: Visit) -> Response:
    """The frame; the script fills it."""
    venues = await visit.interface.read("/region", limit=_VENUES) if visit.may_read("venue") else []
    return visit.page(
        "live.html",
        venues=venues,
        reasons=[reason.value for reason in Reason],
        allowed=visit.may_read("live decision"),
    )


async def feed(visit: Visit) -> Response:
    """What is new, as the operation answers it, with each reason in words."""
    query = {name: visit.query(name) for name in _FILTERS}
    reply = await visit.interface.call("GET", "/realtime/decisions", query=query)
    if reply.is_good:
        for decision in reply.body["decisions"]:
            decision["reason_text"] = visit.words.get(f"reason_{decision['reason']}")
            for each in decision["campaigns"]:
                each["outcome_text"] = visit.words.get(f"reason_{each['outcome']}")
    return JSONResponse(reply.body, reply.status)


PAGES = (("GET", "/live", show), ("GET", "/live/feed", feed))
