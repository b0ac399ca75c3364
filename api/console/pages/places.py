"""Beacons and geofences of a venue: their forms, and a beacon's place on the plan."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response

from api.console.errors import RefusedError
from api.console.interface import InterfaceReply
from api.console.visit import Visit

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
_NEEDED = ("name", "uuid", "major", "minor", "active", "proximity")


PageOfPlace = Callable[[Visit], Awaitable[Response]]


class PlaceKind(NamedTuple):
    """Beacons, or geofences: where they are in the interface, and how they are shown."""

    record: str
    path: str
    template: str
    empty: dict[str, Any]


_BEACONS = PlaceKind("beacon", "beacon", "beacon_form.html", _BEACON)
_GEOFENCES = PlaceKind("geofence", "geofencing", "geofence_form.html", _GEOFENCE)


async def show_new(kind: PlaceKind, visit: Visit) -> Response:
    """The form of a new record."""
    begin = {name: visit.query(name) for name in ("x", "y") if visit.query(name)}
    return await _form(visit, kind, kind.empty | begin)


async def show_form(kind: PlaceKind, visit: Visit) -> Response:
    """The form of a record."""
    return await _form(visit, kind, await visit.interface.read(_path(visit, kind)))


async def create(kind: PlaceKind, visit: Visit) -> Response:
    """POST what was typed."""
    given = _given(visit, kind)
    venue = visit.number("id")
    reply = await visit.interface.call("POST", f"/region/{venue}/{kind.path}", given)
    if reply.is_good:
        return visit.leave(f"/venues/{venue}")
    return await _form(visit, kind, given, reply)


async def save(kind: PlaceKind, visit: Visit) -> Response:
    """PUT what was typed."""
    given = _given(visit, kind)
    reply = await visit.interface.call("PUT", _path(visit, kind), given)
    if reply.is_good:
        return visit.leave(f"/venues/{visit.number('id')}")
    return await _form(visit, kind, given | {"id": visit.number("uid")}, reply)


async def remove(kind: PlaceKind, visit: Visit) -> Response:
    """Delete it."""
    reply = await visit.interface.call("DELETE", _path(visit, kind))
    if not reply.is_good:
        raise RefusedError(reply.status, reply.message)
    return visit.leave(f"/venues/{visit.number('id')}")


async def place(visit: Visit) -> Response:
    """Move a beacon on the plan; everything else stays as it is stored."""
    path = _path(visit, _BEACONS)
    stored = await visit.interface.call("GET", path)
    if not stored.is_good:
        return JSONResponse(stored.body, stored.status)
    needed = {name: stored.body[name] for name in _NEEDED}
    place = {"x": visit.form.number("x"), "y": visit.form.number("y")}
    reply = await visit.interface.call("PUT", path, needed | place)
    return JSONResponse(reply.body, reply.status)


def _path(visit: Visit, kind: PlaceKind) -> str:
    return f"/region/{visit.number('id')}/{kind.path}/{visit.number('uid')}"


async def _form(
    visit: Visit, kind: PlaceKind, given: dict[str, Any], refusal: InterfaceReply | None = None
) -> Response:
    return visit.page(
        kind.template,
        200 if refusal is None else refusal.status,
        given=given,
        tags=", ".join(tag["name"] for tag in given.get("tags", [])),
        venue_id=visit.number("id"),
        faults={} if refusal is None else refusal.fields,
        message="" if refusal is None else refusal.message,
        may_write=visit.may_write(kind.record),
    )


def _given(visit: Visit, kind: PlaceKind) -> dict[str, Any]:
    form = visit.form
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
        "tags": [{"name": name} for name in named(form.text("tags"))],
    }


def named(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _pages(name: str, kind: PlaceKind) -> tuple[tuple[str, str, PageOfPlace], ...]:
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
    ("POST", "/venues/{id:int}/beacons/{uid:int}/place", place),
)
