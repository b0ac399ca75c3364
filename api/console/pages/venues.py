"""Venues: the list, the plan with its beacons, the map of its geofences, NFC tags and QR codes, and
the forms of all of them."""

import io
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import segno
from starlette.responses import JSONResponse, Response

from api.console.context import PageContext
from api.console.forms import PostedForm, tag_names, tag_text
from api.console.interface import InterfaceReply
from api.console.session import PATH, Notice
from api.console.texts import Translations

_ON_THE_PLAN = 500
_NAMED = 12


async def show_list(context: PageContext) -> Response:
    """Show the company's venues."""
    return context.page("venues.html", found=await context.record_page("/region"))


async def show_plan(context: PageContext) -> Response:
    """Show a venue's plan with its beacons, the map of its geofences, and its tags."""
    path = f"/region/{context.path_number('id')}"
    get = context.interface.get
    venue = await get(path)
    beacons: list[dict[str, Any]] = []
    if context.may_read("beacon"):
        beacons = await get(f"{path}/beacon", limit=_ON_THE_PLAN + 1)
    geofences = await get(f"{path}/geofencing", limit=_ON_THE_PLAN)
    scan_tags = {
        kind: await get(f"{path}/{kind}", limit=_ON_THE_PLAN)
        for kind in ("nfc", "qrcode")
        if context.may_read(kind)
    }
    return context.page(
        "venue.html",
        venue=venue,
        plan=venue_plan(venue, beacons[:_ON_THE_PLAN]),
        beacons=beacons[:_ON_THE_PLAN],
        has_more=len(beacons) > _ON_THE_PLAN,
        most=_ON_THE_PLAN,
        geofences=geofences,
        map=geofence_map(geofences),
        scan_tags=scan_tags,
        may_place=context.may_write("beacon"),
        with_recent=context.may_read("statistics") and bool(beacons),
        may_edit=context.may_write("venue"),
    )


async def show_qr_code(context: PageContext) -> Response:
    """The image of a QR code, to print."""
    path = f"/region/{context.path_number('id')}/qrcode/{context.path_number('uid')}"
    record = await context.interface.get(path)
    image = io.BytesIO()
    segno.make_qr(record["value"]).save(image, kind="svg", scale=8)
    return Response(image.getvalue(), media_type="image/svg+xml")


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
        "venue.html#recent",
        plan=plan,
        circles=detection_circles(plan, beacons, counts),
        total=sum(counts.values()),
        most=_NAMED,
        since=recent["since"],
    )


class FormField(NamedTuple):
    """A field of a form: an input, or a list if it has `options`.

    `kind` is text, number (whole), decimal or tags; `label` and `hint` are texts by their keys, or
    the words themselves. Half fields stand side by side.
    """

    name: str
    label: str
    kind: str = "text"
    required: bool = False
    half: bool = False
    hint: str = ""
    options: tuple[str, ...] = ()

    def shown(self, values: dict[str, Any]) -> Any:
        """The value as the input shows it."""
        value = values[self.name]
        return tag_text(tag["name"] for tag in value) if self.kind == "tags" else value

    def choices(self, texts: Translations) -> list[tuple[str, str]]:
        """The options with their texts."""
        return [(option, texts(f"{self.name}_{option}")) for option in self.options]

    def submitted(self, form: PostedForm) -> Any:
        """The value of a posted form, as the interface takes it."""
        if self.kind == "tags":
            return [{"name": name} for name in tag_names(form.text(self.name))]
        read = {"number": form.number, "decimal": form.decimal}.get(self.kind, form.text)
        return read(self.name)

    def empty(self) -> Any:
        """The value of a new record."""
        if self.kind == "tags":
            return []
        return "near" if self.options else ""


class RecordForm(NamedTuple):
    """The form of a kind of record: the paths of its list, in the interface and in the console."""

    record: str
    path: str
    page: str
    fields: tuple[FormField, ...]

    def home(self, parameters: Mapping[str, Any]) -> str:
        """The page of a venue, to which saving leads; the list of venues where there is none."""
        return f"/venues/{parameters['id']}" if "id" in parameters else "/venues"

    @property
    def number(self) -> str:
        """The name of the record's number in the paths."""
        return "id" if self.record == "venue" else "uid"

    def empty(self) -> dict[str, Any]:
        """The values of a new record."""
        return {"active": True, **{each.name: each.empty() for each in self.fields}}

    def submitted(self, form: PostedForm) -> dict[str, Any]:
        """The record in a posted form."""
        values = {each.name: each.submitted(form) for each in self.fields}
        return {"active": form.is_on("active"), **values}


_NAME = FormField("name", "name", required=True)
_VENUES = RecordForm(
    "venue",
    "/region",
    "/venues",
    (
        _NAME,
        FormField("address", "address"),
        FormField("time_zone", "time_zone", hint="Europe/Paris"),
        FormField("visit_silence", "visit_silence", "number", hint="visit_silence_hint"),
        FormField("width", "width", "number", half=True),
        FormField("height", "height", "number", half=True),
        FormField("image", "image", hint="image_hint"),
    ),
)
_BEACONS = RecordForm(
    "beacon",
    "/region/{id}/beacon",
    "/venues/{id}/beacons",
    (
        _NAME,
        FormField("uuid", "UUID", required=True),
        FormField("major", "Major", "number", required=True, half=True),
        FormField("minor", "Minor", "number", required=True, half=True),
        FormField(
            "proximity", "proximity", hint="proximity_hint", options=("immediate", "near", "far")
        ),
        FormField("x", "x", "number", half=True),
        FormField("y", "y", "number", half=True),
        FormField("color", "colour", half=True, hint="#0a7d6c"),
        FormField("tags", "tags", "tags", half=True, hint="tags_hint"),
    ),
)
_GEOFENCES = RecordForm(
    "geofence",
    "/region/{id}/geofencing",
    "/venues/{id}/geofences",
    (
        _NAME,
        FormField("latitude", "latitude", "decimal", required=True, half=True),
        FormField("longitude", "longitude", "decimal", required=True, half=True),
        FormField("radius", "radius", "number", required=True, hint="radius_hint"),
        FormField("tags", "tags", "tags", hint="tags_hint"),
    ),
)
_NFCS, _QRCODES = (
    RecordForm(
        kind,
        f"/region/{{id}}/{kind}",
        f"/venues/{{id}}/{kind}s",
        (
            _NAME,
            FormField("value", "value", required=True, hint="value_hint"),
            FormField("tags", "tags", "tags", hint="tags_hint"),
        ),
    )
    for kind in ("nfc", "qrcode")
)


async def show_new(kind: RecordForm, context: PageContext) -> Response:
    """Show the form for a new record; a beacon may have a position already."""
    position = {name: context.query(name) for name in ("x", "y") if context.query(name)}
    return _form(context, kind, kind.empty() | (position if kind is _BEACONS else {}))


async def show_form(kind: RecordForm, context: PageContext) -> Response:
    """Show the form of a record."""
    return _form(context, kind, await context.interface.get(_path(context, kind)))


async def create(kind: RecordForm, context: PageContext) -> Response:
    """Create a record from the form."""
    values = kind.submitted(context.form)
    parameters = context.request.path_params
    reply = await context.interface.call("POST", kind.path.format_map(parameters), values)
    if reply.is_success:
        done = Notice("created", reply.body["name"])
        return context.redirect(kind.home({"id": reply.body["id"], **parameters}), done)
    return _form(context, kind, values, reply)


async def save(kind: RecordForm, context: PageContext) -> Response:
    """Save the form of a record."""
    values = kind.submitted(context.form)
    reply = await context.interface.call("PUT", _path(context, kind), values)
    if reply.is_success:
        done = Notice("saved", reply.body["name"])
        return context.redirect(kind.home(context.request.path_params), done)
    return _form(context, kind, values | {"id": context.path_number(kind.number)}, reply)


async def remove(kind: RecordForm, context: PageContext) -> Response:
    """Delete a record; a venue with its beacons, geofences and campaigns."""
    home = "/venues" if kind is _VENUES else kind.home(context.request.path_params)
    undo = context.request.url.path.removeprefix(PATH).removesuffix("delete") + "restore"
    done = Notice("deleted", context.form.text("name"), undo)
    return await context.change("DELETE", _path(context, kind), home, done=done)


async def restore(kind: RecordForm, context: PageContext) -> Response:
    """Bring back a deleted record."""
    home, path = kind.home(context.request.path_params), f"{_path(context, kind)}/restore"
    return await context.change("POST", path, home, done=Notice("restored"))


async def move_beacon(context: PageContext) -> Response:
    """Save a beacon's new position on the plan. Its other fields stay as they are stored."""
    path = _path(context, _BEACONS)
    stored = await context.interface.call("GET", path)
    if not stored.is_success:
        return JSONResponse(stored.body, stored.status)
    required = ("name", "uuid", "major", "minor", "active", "proximity")
    values = {name: stored.body[name] for name in required}
    values |= {"x": context.form.number("x"), "y": context.form.number("y")}
    reply = await context.interface.call("PUT", path, values)
    return JSONResponse(reply.body, reply.status)


def _path(context: PageContext, kind: RecordForm) -> str:
    return f"{kind.path.format_map(context.request.path_params)}/{context.path_number(kind.number)}"


def _form(
    context: PageContext,
    kind: RecordForm,
    values: dict[str, Any],
    refusal: InterfaceReply | None = None,
) -> Response:
    parameters = context.request.path_params
    page = kind.page.format_map(parameters)
    if "id" in values:
        address = f"{page}/{values['id']}{'/edit' if kind is _VENUES else ''}"
    else:
        address = f"{page}/new"
    home = "/venues" if kind is _VENUES else kind.home(parameters)
    return context.form_page(
        "record_form.html",
        kind.record,
        values,
        refusal,
        kind=kind,
        home=home,
        address=address,
        removal=f"{page}/{values['id']}/delete" if "id" in values else "",
    )


_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]{3,24}")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=]+")
_EMPTY_SIDE = 20
_DOTS_A_SIDE = 80
_LINES_A_SIDE = 16
_CIRCLES_A_SIDE = 14


class PlacedBeacon(NamedTuple):
    """A beacon on the plan. If `colour` is empty, the console's own is used."""

    record: dict[str, Any]
    x: int
    y: int
    colour: str


class RecentCircle(NamedTuple):
    """A beacon's recent detections. `radius` is 0 if the beacon has no position on the plan."""

    name: str
    detections: int
    x: int = 0
    y: int = 0
    radius: float = 0.0


class Plan(NamedTuple):
    """A plan, in the units of the venue's positions.

    `image` is empty if there is none that can be shown. An image on another site is not loaded, so
    that the other site does not see the request.
    """

    left: int
    top: int
    width: int
    height: int
    dot: float
    step: int
    image: str
    image_is_elsewhere: bool
    beacons: list[PlacedBeacon]

    def vertical_lines(self) -> range:
        """The x positions of the vertical grid lines."""
        return range(self.left - self.left % self.step, self.left + self.width, self.step)

    def horizontal_lines(self) -> range:
        """The y positions of the horizontal grid lines."""
        return range(self.top - self.top % self.step, self.top + self.height, self.step)


def venue_plan(venue: dict[str, Any], beacons: list[dict[str, Any]]) -> Plan:
    """The plan of a venue. It is large enough for beacons outside of the venue's size."""
    placed = [
        PlacedBeacon(each, each["x"], each["y"], _colour(each["color"]))
        for each in beacons
        if each["x"] is not None and each["y"] is not None
    ]
    left, right = _extent(venue["width"], [each.x for each in placed])
    top, bottom = _extent(venue["height"], [each.y for each in placed])
    width, height = right - left, bottom - top
    image = venue["image"] if _IMAGE.fullmatch(venue["image"]) else ""
    longest = max(width, height)
    elsewhere = bool(venue["image"]) and not image
    dot, step = longest / _DOTS_A_SIDE, _step(longest)
    return Plan(left, top, width, height, dot, step, image, elsewhere, placed)


class MappedCircle(NamedTuple):
    """A geofence on the map, in metres from the map's centre."""

    record: dict[str, Any]
    x: float
    y: float


class GeofenceMap(NamedTuple):
    """The geofences of a venue to scale. Lengths are metres; y grows to the south."""

    left: float
    top: float
    width: float
    height: float
    circles: list[MappedCircle]


_METRES_A_DEGREE = 111_195.0


def geofence_map(geofences: list[dict[str, Any]]) -> GeofenceMap | None:
    """The map around the first geofence; None without geofences."""
    if not geofences:
        return None
    centre = geofences[0]
    across = _METRES_A_DEGREE * math.cos(math.radians(centre["latitude"]))
    circles = []
    for each in geofences:
        east = (each["longitude"] - centre["longitude"] + 180) % 360 - 180
        y = (centre["latitude"] - each["latitude"]) * _METRES_A_DEGREE
        circles.append(MappedCircle(each, round(east * across, 1), round(y, 1)))
    left, top = (min(c[axis] - c.record["radius"] for c in circles) for axis in (1, 2))
    right, bottom = (max(c[axis] + c.record["radius"] for c in circles) for axis in (1, 2))
    return GeofenceMap(left, top, right - left, bottom - top, circles)


def detection_circles(
    plan: Plan, beacons: list[dict[str, Any]], detections: dict[int, int]
) -> list[RecentCircle]:
    """A circle per beacon, the most detections first; its area is proportional to them."""
    places = {each.record["id"]: each for each in plan.beacons}
    most = max(detections.values(), default=1)
    room = max(plan.width, plan.height) / _CIRCLES_A_SIDE
    found = []
    for beacon in beacons:
        count = detections.get(beacon["id"], 0)
        place = places.get(beacon["id"])
        if count and place is None:
            found.append(RecentCircle(beacon["name"], count))
        elif count and place is not None:
            radius = max(1.5 * plan.dot, room * math.sqrt(count / most))
            found.append(RecentCircle(beacon["name"], count, place.x, place.y, round(radius, 3)))
    return sorted(found, key=lambda each: -each.detections)


def _step(longest: int) -> int:
    """The distance of grid lines: the first of 1, 2, 5, 10, 20, 50 ... that makes few lines."""
    step, places = 1, 0
    while longest / step > _LINES_A_SIDE:
        places += 1
        step = (1, 2, 5)[places % 3] * 10 ** (places // 3)
    return step


def _extent(size: int | None, positions: list[int]) -> tuple[int, int]:
    """The extent of an axis, with room for the dot of a beacon at the edge or beyond it."""
    beyond = 1 if positions else 0
    end = max([size or 0, *(each + beyond for each in positions)])
    return min([0, *(each - beyond for each in positions if each <= 0)]), end or _EMPTY_SIDE


def _colour(written: str) -> str:
    return written if _COLOUR.fullmatch(written or "") else ""


def _pages(
    kind: RecordForm, one: str
) -> tuple[tuple[str, str, Callable[[PageContext], Awaitable[Response]]], ...]:
    listed = kind.page.replace("{id}", "{id:int}")
    return (
        ("GET", f"{listed}/new", partial(show_new, kind)),
        ("POST", f"{listed}/new", partial(create, kind)),
        ("GET", listed + one, partial(show_form, kind)),
        ("POST", listed + one, partial(save, kind)),
        ("POST", f"{listed}{one.removesuffix('/edit')}/delete", partial(remove, kind)),
        ("POST", f"{listed}{one.removesuffix('/edit')}/restore", partial(restore, kind)),
    )


PAGES = (
    ("GET", "/venues", show_list),
    *_pages(_VENUES, "/{id:int}/edit"),
    ("GET", "/venues/{id:int}", show_plan),
    ("GET", "/venues/{id:int}/recent", show_recent),
    *_pages(_BEACONS, "/{uid:int}"),
    *_pages(_GEOFENCES, "/{uid:int}"),
    *_pages(_NFCS, "/{uid:int}"),
    *_pages(_QRCODES, "/{uid:int}"),
    ("GET", "/venues/{id:int}/qrcodes/{uid:int}/image", show_qr_code),
    ("POST", "/venues/{id:int}/beacons/{uid:int}/place", move_beacon),
)
