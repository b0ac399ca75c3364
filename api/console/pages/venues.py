"""Venues: the list, the plan with beacons and geofences, the form."""

from typing import Any

from starlette.responses import Response

from api.console.context import PageContext
from api.console.errors import RefusedError
from api.console.interface import InterfaceReply
from api.console.pages.listing import record_page
from api.console.pages.plan import detection_circles, venue_plan

_ON_THE_PLAN = 500
_NAMED = 12
_NEW = {
    "name": "",
    "address": "",
    "active": True,
    "width": None,
    "height": None,
    "image": "",
    "time_zone": "",
}


async def show_list(context: PageContext) -> Response:
    """Show the company's venues."""
    return context.page("venues.html", found=await record_page(context, "/region"))


async def show_plan(context: PageContext) -> Response:
    """Show a venue's plan with its beacons, and its geofences."""
    path = f"/region/{context.path_number('id')}"
    get = context.interface.get
    venue = await get(path)
    beacons: list[dict[str, Any]] = []
    if context.may_read("beacon"):
        beacons = await get(f"{path}/beacon", limit=_ON_THE_PLAN + 1)
    return context.page(
        "venue.html",
        venue=venue,
        plan=venue_plan(venue, beacons[:_ON_THE_PLAN]),
        beacons=beacons[:_ON_THE_PLAN],
        has_more=len(beacons) > _ON_THE_PLAN,
        most=_ON_THE_PLAN,
        geofences=await get(f"{path}/geofencing", limit=_ON_THE_PLAN),
        may_place=context.may_write("beacon"),
        with_recent=context.may_read("statistics") and bool(beacons),
        may_edit=context.may_write("venue"),
    )


async def show_recent(context: PageContext) -> Response:
    """Show the beacons' detections of the last minutes, as circles and as text."""
    number = context.path_number("id")
    recent = await context.interface.get(f"/statistics/region/{number}/recent")
    path = f"/region/{number}"
    venue = await context.interface.get(path)
    beacons = await context.interface.get(f"{path}/beacon", limit=_ON_THE_PLAN)
    plan = venue_plan(venue, beacons)
    counts = {each["id"]: each["detections"] for each in recent["beacons"]}
    return context.page(
        "part_recent.html",
        plan=plan,
        circles=detection_circles(plan, beacons, counts),
        total=sum(counts.values()),
        most=_NAMED,
        since=recent["since"],
    )


async def show_new(context: PageContext) -> Response:
    """Show the form for a new venue."""
    return _form(context, _NEW)


async def show_form(context: PageContext) -> Response:
    """Show the form of a venue."""
    return _form(context, await context.interface.get(f"/region/{context.path_number('id')}"))


async def create(context: PageContext) -> Response:
    """Create a venue from the form."""
    values = _submitted(context)
    reply = await context.interface.call("POST", "/region", values)
    if reply.is_success:
        return context.redirect(f"/venues/{reply.body['id']}")
    return _form(context, values, reply)


async def save(context: PageContext) -> Response:
    """Save the form of a venue."""
    number = context.path_number("id")
    values = _submitted(context)
    reply = await context.interface.call("PUT", f"/region/{number}", values)
    if reply.is_success:
        return context.redirect(f"/venues/{number}")
    return _form(context, values | {"id": number}, reply)


async def remove(context: PageContext) -> Response:
    """Delete a venue with its beacons, geofences and campaigns."""
    reply = await context.interface.call("DELETE", f"/region/{context.path_number('id')}")
    if not reply.is_success:
        raise RefusedError(reply.status, reply.message)
    return context.redirect("/venues")


def _form(
    context: PageContext, values: dict[str, Any], refusal: InterfaceReply | None = None
) -> Response:
    return context.page(
        "venue_form.html",
        200 if refusal is None else refusal.status,
        values=values,
        faults={} if refusal is None else refusal.fields,
        message="" if refusal is None else refusal.message,
        may_write=context.may_write("venue"),
    )


def _submitted(context: PageContext) -> dict[str, Any]:
    form = context.form
    return {
        **form.texts(("name", "address", "image", "time_zone")),
        "active": form.is_on("active"),
        "width": form.number("width"),
        "height": form.number("height"),
    }


PAGES = (
    ("GET", "/venues", show_list),
    ("GET", "/venues/new", show_new),
    ("POST", "/venues/new", create),
    ("GET", "/venues/{id:int}", show_plan),
    ("GET", "/venues/{id:int}/recent", show_recent),
    ("GET", "/venues/{id:int}/edit", show_form),
    ("POST", "/venues/{id:int}/edit", save),
    ("POST", "/venues/{id:int}/delete", remove),
)
