"""Venues, and the beacons, geofences, NFC tags and QR codes in them: lists, forms, the plan."""

import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import segno
from fastapi import APIRouter
from starlette.responses import Response

from api import venues
from api.answers import ApiError
from api.console.context import Context, Notice, PageContext
from api.console.forms import tag_names, tag_text
from api.console.rendering import PATH

router = APIRouter()
ON_THE_PLAN = 1000
_NAMED = 12
_EMPTY_SIDE = 20


class FormField(NamedTuple):
    """A field of a form: `kind` is its type in JSON, or choice."""

    name: str
    kind: str
    required: bool

    def shown(self, values: Mapping[str, Any]) -> Any:
        """The value as a form or a file shows it."""
        value = values.get(self.name)
        if self.kind == "array":
            return tag_text(value or ())
        if isinstance(value, bool):
            return int(value)
        return "" if value is None else value

    def submitted(self, form: Mapping[str, str]) -> Any:
        """The value of a posted form or of a line of a file, as the interface takes it."""
        text = form.get(self.name, "")
        if self.kind == "array":
            return tag_names(text)
        if self.kind == "boolean":  # a form has only boxes that are checked
            return form.get(self.name, False)
        if self.kind == "number":
            return text.replace(",", ".")
        return text or None if self.kind == "integer" else text


class RecordKind(NamedTuple):
    """A kind of record: the path of its list in the interface, its fields and columns."""

    record: str
    path: str
    fields: tuple[FormField, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def pages(self) -> str:
        """The path of its list here."""
        return f"{'/venues/{id}' if '{id}' in self.path else ''}/{self.record}s"

    def list_path(self, context: PageContext) -> str:
        """The path of the list in the interface."""
        return self.path.format_map(context.request.path_params)

    def one_path(self, context: PageContext) -> str:
        """The path of the record in the interface."""
        return f"{self.list_path(context)}/{context.path_number('uid')}"

    def page(self, context: PageContext) -> str:
        """The page of the list."""
        return self.pages.format_map(context.request.path_params)

    def add_page(
        self, router: APIRouter, method: str, path: str, handler: Callable[..., Any]
    ) -> None:
        """Add a page of the kind: `path` follows the list's, {uid} in it names a record."""
        path = (self.pages + path).replace("}", ":int}")
        router.add_api_route(path, partial(handler, self), methods=[method])


def _with_form(records: Any, *columns: str) -> RecordKind:
    """A kind of record. Its form has the fields that the interface documents, the name first."""
    schema = records.created.model_json_schema()
    fields = [
        FormField(
            name,
            "choice" if "enum" in about else about.get("anyOf", [about])[0]["type"],
            name in schema["required"],
        )
        for name, about in schema["properties"].items()
    ]
    fields.sort(key=lambda each: (each.name != "name", each.name == "active"))
    return RecordKind(records.kind, records.path, tuple(fields), columns)


# What a new record has unless a form or a file says something else.
NEW = {"active": True, "proximity": "near"}
VENUES = _with_form(venues.VENUES, "name", "address", "time_zone", "width", "active")
_OF_BEACONS = ("name", "proximity", "tags", "x", "uuid", "major", "minor", "active")
BEACONS = _with_form(venues.BEACONS, *_OF_BEACONS)
_OF_GEOFENCES = ("name", "latitude", "longitude", "radius", "tags", "active")
GEOFENCES = _with_form(venues.GEOFENCES, *_OF_GEOFENCES)
NFCS = _with_form(venues.NFCS, "name", "value", "tags", "active")
QRCODES = _with_form(venues.QRCODES, "name", "value", "tags", "active")
IN_VENUES = (BEACONS, GEOFENCES, NFCS, QRCODES)
CAMPAIGNS = RecordKind("campaign", "/lieu/{id}/campaign")


async def venue_of(context: PageContext) -> dict[str, Any]:
    """The venue of the path; without a name if the account may not read it."""
    number = context.path_number("id")
    if context.may_read("venue"):
        return dict(await context.get(f"/region/{number}"))
    return {"id": number, "name": "", "time_zone": "", "active": True}


async def show_list(kind: RecordKind, context: Context) -> Response:
    """Show the records, with a search over all of them."""
    found = await context.listed(kind.list_path(context))
    venue = None if kind is VENUES else await venue_of(context)
    return context.page("records.html", kind=kind, venue=venue, found=found)


async def show_form(kind: RecordKind, context: Context) -> Response:
    """Show the form of a record, or for a new one."""
    stored = NEW if context.is_new else await context.get(kind.one_path(context))
    return _form(context, kind, stored)


async def submit(kind: RecordKind, context: Context) -> Response:
    """Create a record from the form, or save it."""
    values = {each.name: each.submitted(context.form) for each in kind.fields}
    try:
        if kind in (NFCS, QRCODES) and not context.is_new:
            text = (await context.get(kind.one_path(context)))["value"]
            if text.replace("\r\n", "\n") == values["value"]:  # a browser changes the line ends
                values["value"] = text
        stored = await store(kind, context, values)
    except ApiError as refusal:
        return _form(context, kind, values, refusal)
    page = f"/venues/{stored['id']}" if kind is VENUES else kind.page(context)
    return context.redirect(page, Notice("created" if context.is_new else "saved", stored["name"]))


async def store(kind: RecordKind, context: PageContext, values: dict[str, Any]) -> Any:
    """Create the record of a form, or save it. Returns what is stored."""
    if context.is_new:
        return await context.ask("POST", kind.list_path(context), values)
    return await context.ask("PUT", kind.one_path(context), values)


async def remove(kind: RecordKind, context: Context) -> Response:
    """Delete a record; a venue with its beacons, geofences and campaigns."""
    await context.ask("DELETE", kind.one_path(context))
    undo = context.path.removesuffix("delete") + "restore"
    done = Notice("deleted", context.form.get("name", ""), undo)
    return context.redirect(kind.page(context), done)


async def restore(kind: RecordKind, context: Context) -> Response:
    """Bring back a deleted record; one that was brought back already stays as it is."""
    try:
        await context.ask("POST", f"{kind.one_path(context)}/restore")
    except ApiError as error:
        if error.status != 404:
            raise
        await context.get(kind.one_path(context))
    return context.redirect(kind.page(context), Notice("restored"))


@router.get("/venues/{id:int}/qrcodes/{uid:int}/image")
async def show_qr_code(context: Context) -> Response:
    """The image of a QR code, to print."""
    image = io.BytesIO()
    record = await context.get(QRCODES.one_path(context))
    segno.make_qr(record["value"]).save(image, kind="svg", scale=8)
    return Response(image.getvalue(), media_type="image/svg+xml")


def _form(
    context: PageContext,
    kind: RecordKind,
    values: dict[str, Any],
    refusal: ApiError | None = None,
) -> Response:
    home = PATH + kind.page(context)
    removal = "" if context.is_new else PATH + context.path.removesuffix("/edit") + "/delete"
    return context.form_page(
        "record_form.html", kind.record, values, refusal, kind=kind, home=home, removal=removal
    )


@router.get("/venues/{id:int}")
async def show_plan(context: Context) -> Response:
    """Show a venue's plan with its beacons."""
    path = f"/region/{context.path_number('id')}"
    venue = await context.get(path)
    beacons: list[dict[str, Any]] = []
    if context.may_read("beacon"):
        beacons = await context.get(f"{path}/beacon", limit=ON_THE_PLAN)
    return context.page(
        "venue.html",
        venue=venue,
        plan=venue_plan(venue, beacons),
        most=ON_THE_PLAN,
        may_place=context.may_write("beacon"),
    )


@router.get("/venues/{id:int}/recent")
async def show_recent(context: Context) -> Response:
    """Show the beacons' detections of the last minutes; the script draws a circle for each."""
    number = context.path_number("id")
    recent = await context.get(f"/statistics/region/{number}/recent")
    names = {}
    if context.may_read("beacon"):
        beacons = await context.get(f"/region/{number}/beacon", limit=ON_THE_PLAN)
        names = {each["id"]: each["name"] for each in beacons}
    found = [each for each in recent["beacons"] if each["id"] in names]
    total = sum(each["detections"] for each in recent["beacons"])
    since = recent["since"]
    return context.page(
        "venue.html#recent", found=found, names=names, total=total, most=_NAMED, since=since
    )


@router.post("/venues/{id:int}/beacons/{uid:int}/place")
async def move_beacon(context: Context) -> Response:
    """Save a beacon's new position on the plan. Its other fields stay as they are stored."""
    path = BEACONS.one_path(context)
    position = {name: context.form.get(name) for name in ("x", "y")}
    moved = await context.ask("PUT", path, await context.get(path) | position)
    return context.page("venue.html#placed", beacon=moved)


def venue_plan(venue: dict[str, Any], beacons: list[dict[str, Any]]) -> dict[str, Any]:
    """What the plan shows, in the units of the venue's positions.

    It is large enough for beacons outside of the venue's size; the view has room for dots and names
    at its edges. An image on another site is not shown: the policy of pages forbids to load it.
    """
    placed = [each for each in beacons if None not in (each["x"], each["y"])]
    left, width = _extent(venue["width"], [each["x"] for each in placed])
    top, height = _extent(venue["height"], [each["y"] for each in placed])
    longest = max(width, height)
    edge = longest / 20
    image = venue["image"] if venue["image"].startswith("data:image/") else ""
    return {
        "placed": placed,
        "unplaced": [each for each in beacons if None in (each["x"], each["y"])],
        "left": left,
        "top": top,
        "width": width,
        "height": height,
        "view": f"{left - edge:g} {top - edge:g} {width + 2 * edge:g} {height + 2 * edge:g}",
        "step": 10 ** (len(str(longest)) - 1) // 2 or 1,  # makes 2 to 20 lines
        "image": image,
    }


def _extent(size: int | None, positions: list[int]) -> tuple[int, int]:
    """The begin and the length of an axis."""
    begin, end = min([0, *positions]), max([size or 0, *positions])
    return begin, end - begin or _EMPTY_SIDE


for _kind in (VENUES, *IN_VENUES):
    _kind.add_page(router, "GET", "", show_list)
    for _path in ("/new", "/{uid}/edit" if _kind is VENUES else "/{uid}"):
        _kind.add_page(router, "GET", _path, show_form)
        _kind.add_page(router, "POST", _path, submit)
for _kind in (VENUES, *IN_VENUES, CAMPAIGNS):
    _kind.add_page(router, "POST", "/{uid}/delete", remove)
    _kind.add_page(router, "POST", "/{uid}/restore", restore)
