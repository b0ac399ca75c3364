"""Venues: the list, the plan with what is in it, the record."""

from typing import Any

from starlette.responses import Response

from api.console.errors import RefusedError
from api.console.interface import InterfaceReply
from api.console.pages.listing import record_page
from api.console.pages.plan import circles_of, plan_of
from api.console.visit import Visit

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


async def show_list(visit: Visit) -> Response:
    """The company's venues."""
    return visit.page("venues.html", found=await record_page(visit, "/region"))


async def show_plan(visit: Visit) -> Response:
    """A venue with its beacons where they are, and its geofences."""
    where = f"/region/{visit.number('id')}"
    read = visit.interface.read
    venue = await read(where)
    beacons: list[dict[str, Any]] = []
    if visit.may_read("beacon"):
        beacons = await read(f"{where}/beacon", limit=_ON_THE_PLAN + 1)
    return visit.page(
        "venue.html",
        venue=venue,
        plan=plan_of(venue, beacons[:_ON_THE_PLAN]),
        beacons=beacons[:_ON_THE_PLAN],
        has_more=len(beacons) > _ON_THE_PLAN,
        most=_ON_THE_PLAN,
        geofences=await read(f"{where}/geofencing", limit=_ON_THE_PLAN),
        may_place=visit.may_write("beacon"),
        with_recent=visit.may_read("statistics") and bool(beacons),
        may_edit=visit.may_write("venue"),
    )


async def show_recent(visit: Visit) -> Response:
    """What its beacons detected within the last minutes, as circles and in words."""
    number = visit.number("id")
    recent = await visit.interface.read(f"/statistics/region/{number}/recent")
    where = f"/region/{number}"
    venue = await visit.interface.read(where)
    beacons = await visit.interface.read(f"{where}/beacon", limit=_ON_THE_PLAN)
    plan = plan_of(venue, beacons)
    counts = {each["id"]: each["detections"] for each in recent["beacons"]}
    return visit.page(
        "part_recent.html",
        plan=plan,
        circles=circles_of(plan, beacons, counts),
        total=sum(counts.values()),
        most=_NAMED,
        since=recent["since"],
    )


async def show_new(visit: Visit) -> Response:
    """The form of a new venue."""
    return _form(visit, _NEW)


async def show_form(visit: Visit) -> Response:
    """The form of a venue."""
    return _form(visit, await visit.interface.read(f"/region/{visit.number('id')}"))


async def create(visit: Visit) -> Response:
    """POST what was typed."""
    given = _given(visit)
    reply = await visit.interface.call("POST", "/region", given)
    if reply.is_good:
        return visit.leave(f"/venues/{reply.body['id']}")
    return _form(visit, given, reply)


async def save(visit: Visit) -> Response:
    """PUT what was typed."""
    number = visit.number("id")
    given = _given(visit)
    reply = await visit.interface.call("PUT", f"/region/{number}", given)
    if reply.is_good:
        return visit.leave(f"/venues/{number}")
    return _form(visit, given | {"id": number}, reply)


async def remove(visit: Visit) -> Response:
    """Delete it, with all that is in it."""
    reply = await visit.interface.call("DELETE", f"/region/{visit.number('id')}")
    if not reply.is_good:
        raise RefusedError(reply.status, reply.message)
    return visit.leave("/venues")


def _form(visit: Visit, given: dict[str, Any], refusal: InterfaceReply | None = None) -> Response:
    return visit.page(
        "venue_form.html",
        200 if refusal is None else refusal.status,
        given=given,
        faults={} if refusal is None else refusal.fields,
        message="" if refusal is None else refusal.message,
        may_write=visit.may_write("venue"),
    )


def _given(visit: Visit) -> dict[str, Any]:
    form = visit.form
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
