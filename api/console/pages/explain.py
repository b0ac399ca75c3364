"""Explains whether a campaign fires for a beacon, a time and a device."""

from typing import Any

from starlette.responses import Response

from api.console.context import PageContext
from api.console.times import local_time


async def explain(context: PageContext) -> Response:
    """Show the checks in their order, and the next time at which the campaign would fire."""
    form = context.form
    question: dict[str, Any] = {}
    if form.text("at"):
        question["at"] = local_time(form.text("at"), form.text("zone"))
    if form.text("beacon"):
        question["beacon"] = form.number("beacon")
    for name in ("proximity", "udid"):
        if form.text(name):
            question[name] = form.text(name)
    path = f"/lieu/{context.path_number('id')}/campaign/{context.path_number('uid')}/explain"
    reply = await context.interface.call("POST", path, question)
    return context.page("part_explained.html", reply.status, reply=reply)


PAGES = (("POST", "/venues/{id:int}/campaigns/{uid:int}/explain", explain),)
