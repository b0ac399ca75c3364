"""Beacons and geofences of a venue: their forms, and a beacon's position on the plan."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response

from api.console.context import PageContext
from api.console.errors import RefusedError
from api.console.interface import InterfaceReply

_BEACON = {
    "name": "",
    "uuid": "",
    "major": "",
    "minor": "",
    "active": True,
    "proximity": "near",
    "x": None,
    "y": None,
    "color": "",
    "tags": [],
}
_GEOFENCE = {"name": "", "longitude": "", "latitude": "", "radius": "", "active": True}
_REQUIRED = ("name", "uuid", "major", "minor", "active", "proximity")


RecordHandler = Callable[[PageContext], Awaitable[Response]]


class RecordForm(NamedTuple):
    """The form of beacons or of geofences: path, template, and the values of a new record."""

    record: str
    path: str
    template: str
    empty: dict[str, Any]


_BEACONS = RecordForm("beacon", "beacon", "beacon_form.html", _BEACON)
_GEOFENCES = RecordForm("geofence", "geofencing", "geofence_form.html", _GEOFENCE)


async def show_new(kind: RecordForm, context: PageContext) -> Response:
    """Show the form for a new record."""
    position = {name: context.query(name) for name in ("x", "y") if context.query(name)}
    return await _form(context, kind, kind.empty | position)


async def show_form(kind: RecordForm, context: PageContext) -> Response:
    """Show the form of a record."""
    return await _form(context, kind, await context.interface.get(_path(context, kind)))


async def create(kind: RecordForm, context: PageContext) -> Response:
    """Create a record from the form."""
    values = _submitted(context, kind)
    venue = context.path_number("id")
    reply = await context.interface.call("POST", f"/region/{venue}/{kind.path}", values)
    if reply.is_success:
        return context.redirect(f"/venues/{venue}")
    return await _form(context, kind, values, reply)


async def save(kind: RecordForm, context: PageContext) -> Response:
    """Save the form of a record."""
    values = _submitted(context, kind)
    reply = await context.interface.call("PUT", _path(context, kind), values)
    if reply.is_success:
        return context.redirect(f"/venues/{context.path_number('id')}")
    return await _form(context, kind, values | {"id": context.path_number("uid")}, reply)


async def remove(kind: RecordForm, context: PageContext) -> Response:
    """Delete a record."""
    reply = await context.interface.call("DELETE", _path(context, kind))
    if not reply.is_success:
        raise RefusedError(reply.status, reply.message)
    return context.redirect(f"/venues/{context.path_number('id')}")


async def move_beacon(context: PageContext) -> Response:
    """Save a beacon's new position on the plan. Its other fields stay as they are stored."""
    path = _path(context, _BEACONS)
    stored = await context.interface.call("GET", path)
    if not stored.is_success:
        return JSONResponse(stored.body, stored.status)
    required = {name: stored.body[name] for name in _REQUIRED}
    position = {"x": context.form.number("x"), "y": context.form.number("y")}
    reply = await context.interface.call("PUT", path, required | position)
    return JSONResponse(reply.body, reply.status)


def _path(context: PageContext, kind: RecordForm) -> str:
    return f"/region/{context.path_number('id')}/{kind.path}/{context.path_number('uid')}"


async def _form(
    context: PageContext,
    kind: RecordForm,
    values: dict[str, Any],
    refusal: InterfaceReply | None = None,
) -> Response:
    return context.page(
        kind.template,
        200 if refusal is None else refusal.status,
        values=values,
        tags=", ".join(tag["name"] for tag in values.get("tags", [])),
        venue_id=context.path_number("id"),
        faults={} if refusal is None else refusal.fields,
        message="" if refusal is None else refusal.message,
        may_write=context.may_write(kind.record),
    )


def _submitted(context: PageContext, kind: RecordForm) -> dict[str, Any]:
    form = context.form
    if kind is _GEOFENCES:
        return {
            "name": form.text("name"),
            "longitude": form.decimal("longitude"),
            "latitude": form.decimal("latitude"),
            "radius": form.number("radius"),
            "active": form.is_on("active"),
        }
    return {
        **form.texts(("name", "uuid", "proximity", "color")),
        **{name: form.number(name) for name in ("major", "minor", "x", "y")},
        "active": form.is_on("active"),
        "tags": [{"name": name} for name in comma_separated(form.text("tags"))],
    }


def comma_separated(text: str) -> list[str]:
    """The names in a comma-separated text."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _pages(name: str, kind: RecordForm) -> tuple[tuple[str, str, RecordHandler], ...]:
    listed = f"/venues/{{id:int}}/{name}"
    one = f"{listed}/{{uid:int}}"
    return (
        ("GET", f"{listed}/new", partial(show_new, kind)),
        ("POST", f"{listed}/new", partial(create, kind)),
        ("GET", one, partial(show_form, kind)),
        ("POST", one, partial(save, kind)),
        ("POST", f"{one}/delete", partial(remove, kind)),
    )


PAGES = (
    *_pages("beacons", _BEACONS),
    *_pages("geofences", _GEOFENCES),
    ("POST", "/venues/{id:int}/beacons/{uid:int}/place", move_beacon),
)
