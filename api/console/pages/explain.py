"""Would it fire? The explain operation's answer for a beacon, a time, a device."""

from typing import Any

from starlette.responses import Response

from api.console.moments import at_wall
from api.console.visit import Visit


async def explain(visit: Visit) -> Response:
    """The checks in their order, and when it would fire next."""
    form = visit.form
    question: dict[str, Any] = {}
    if form.text("at"):
        question["at"] = at_wall(form.text("at"), form.text("zone"))
    if form.text("beacon"):
        question["beacon"] = form.number("beacon")
    for name in ("proximity", "udid"):
        if form.text(name):
            question[name] = form.text(name)
    where = f"/lieu/{visit.number('id')}/campaign/{visit.number('uid')}/explain"
    reply = await visit.interface.call("POST", where, question)
    return visit.page("part_explained.html", reply.status, reply=reply)


PAGES = (("POST", "/venues/{id:int}/campaigns/{uid:int}/explain", explain),)
