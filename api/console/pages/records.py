"""Venues, and the beacons, geofences, NFC tags and QR codes in them: their lists and forms."""

import io
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import segno
from fastapi import APIRouter
from starlette.responses import Response

from api.answers import ApiError
from api.console.context import Context, PageContext, PageRoute
from api.console.cookies import PATH, Notice
from api.console.forms import tag_names, tag_text

router = APIRouter(route_class=PageRoute)


class FormField(NamedTuple):
    """A field of a form.

    `kind` is text, number (whole), decimal, proximity or tags. Half fields stand side by side.
    """

    name: str
    kind: str = "text"
    required: bool = False
    half: bool = False

    def shown(self, values: Mapping[str, Any]) -> Any:
        """The value as a form or a file shows it."""
        value = values.get(self.name)
        if self.kind == "tags":
            return tag_text(value or ())
        if isinstance(value, bool):
            return int(value)
        return "" if value is None else value

    def submitted(self, form: Mapping[str, str]) -> Any:
        """The value of a posted form or of a line of a file, as the interface takes it."""
        text = form.get(self.name, "")
        if self.kind == "tags":
            return tag_names(text)
        if self.kind == "decimal":
            return text.replace(",", ".")
        return text or None if self.kind == "number" else text


class RecordKind(NamedTuple):
    """A kind of record: the path of its list in the interface, its fields and its columns.

    `many` is its name in the console's paths. Columns that no operation sorts have a dash before
    them.
    """

    record: str
    path: str
    fields: tuple[FormField, ...]
    columns: tuple[str, ...]

    @property
    def many(self) -> str:
        """The kind's name in the paths of the console and among the texts."""
        return f"{self.record}s"

    @property
    def in_venue(self) -> bool:
        """Whether the records belong to a venue."""
        return self.record != "venue"

    @property
    def list_page(self) -> str:
        """The path of the list's page."""
        return f"/venues/{{id:int}}/{self.many}" if self.in_venue else "/venues"

    @property
    def one_page(self) -> str:
        """The path of a record's page, below which are those that change it."""
        return f"{self.list_page}/{{{'uid' if self.in_venue else 'id'}:int}}"

    def list_path(self, context: PageContext) -> str:
        """The path of the list in the interface."""
        return self.path.format_map(context.request.path_params)

    def one_path(self, context: PageContext) -> str:
        """The path of the record in the interface."""
        number = context.path_number("uid" if self.in_venue else "id")
        return f"{self.list_path(context)}/{number}"

    def page(self, context: PageContext) -> str:
        """The page of the list."""
        return f"/venues/{context.path_number('id')}/{self.many}" if self.in_venue else "/venues"


# What a new record has unless a form or a file says something else.
NEW = {"active": True, "proximity": "near"}
_NAME = FormField("name", required=True)
_TAGS = FormField("tags", "tags")
VENUES = RecordKind(
    "venue",
    "/region",
    (
        _NAME,
        FormField("address"),
        FormField("time_zone"),
        FormField("visit_silence", "number"),
        FormField("width", "number", half=True),
        FormField("height", "number", half=True),
        FormField("image"),
    ),
    ("name", "address", "time_zone", "width", "active"),
)
BEACONS = RecordKind(
    "beacon",
    "/region/{id}/beacon",
    (
        _NAME,
        FormField("uuid", required=True),
        FormField("major", "number", required=True, half=True),
        FormField("minor", "number", required=True, half=True),
        FormField("proximity", "proximity"),
        FormField("x", "number", half=True),
        FormField("y", "number", half=True),
        FormField("color", half=True),
        _TAGS._replace(half=True),
    ),
    ("name", "proximity", "-tags", "x", "uuid", "major", "minor", "active"),
)
GEOFENCES = RecordKind(
    "geofence",
    "/region/{id}/geofencing",
    (
        _NAME,
        FormField("latitude", "decimal", required=True, half=True),
        FormField("longitude", "decimal", required=True, half=True),
        FormField("radius", "number", required=True),
        _TAGS,
    ),
    ("name", "latitude", "longitude", "radius", "-tags", "active"),
)
NFCS, QRCODES = (
    RecordKind(
        record,
        f"/region/{{id}}/{record}",
        (_NAME, FormField("value", required=True), _TAGS),
        ("name", "value", "-tags", "active"),
    )
    for record in ("nfc", "qrcode")
)
IN_VENUES = (BEACONS, GEOFENCES, NFCS, QRCODES)
CAMPAIGNS = RecordKind("campaign", "/lieu/{id}/campaign", (), ())  # has its own list and form


async def venue_of(context: PageContext) -> dict[str, Any]:
    """The venue of the path; without a name if the account may not read it."""
    number = context.path_number("id")
    if context.may_read("venue"):
        return dict(await context.get(f"/region/{number}"))
    unknown = dict.fromkeys(("name", "time_zone", "image"), "") | {"width": None, "height": None}
    return {"id": number, "active": True, **unknown}


async def show_list(kind: RecordKind, context: Context) -> Response:
    """Show the records, with a search over all of them."""
    found = await context.listed(kind.list_path(context))
    venue = await venue_of(context) if kind.in_venue else None
    return context.page("records.html", kind=kind, venue=venue, found=found)


async def show_new(kind: RecordKind, context: Context) -> Response:
    """Show the form for a new record."""
    return _form(context, kind, NEW)


async def show_form(kind: RecordKind, context: Context) -> Response:
    """Show the form of a record."""
    return _form(context, kind, await context.get(kind.one_path(context)))


async def submit(kind: RecordKind, context: Context) -> Response:
    """Create a record from the form, or save it."""
    values = {each.name: each.submitted(context.form) for each in kind.fields}
    values["active"] = "active" in context.form
    try:
        stored, done = await store(kind, context, values)
    except ApiError as refusal:
        return _form(context, kind, values, refusal)
    return context.redirect(
        kind.page(context) if kind.in_venue else f"/venues/{stored['id']}", done
    )


async def store(
    kind: RecordKind, context: PageContext, values: dict[str, Any]
) -> tuple[dict[str, Any], Notice]:
    """Create the record of a form, or save it; the form of a new one ends with /new."""
    if context.path.endswith("/new"):
        stored = await context.ask("POST", kind.list_path(context), values)
        return stored, Notice("created", stored["name"])
    stored = await context.ask("PUT", kind.one_path(context), values)
    return stored, Notice("saved", stored["name"])


async def remove(kind: RecordKind, context: Context) -> Response:
    """Delete a record; a venue with its beacons, geofences and campaigns."""
    await context.ask("DELETE", kind.one_path(context))
    undo = context.path.removesuffix("delete") + "restore"
    done = Notice("deleted", context.form.get("name", ""), undo)
    return context.redirect(kind.page(context), done)


async def restore(kind: RecordKind, context: Context) -> Response:
    """Bring back a deleted record."""
    await context.ask("POST", f"{kind.one_path(context)}/restore")
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
    is_new = context.path.endswith("/new")
    removal = "" if is_new else PATH + context.path.removesuffix("/edit") + "/delete"
    return context.form_page(
        "record_form.html", kind.record, values, refusal, kind=kind, home=home, removal=removal
    )


for _kind in (VENUES, *IN_VENUES):
    _list, _form_page = _kind.list_page, _kind.one_page + ("" if _kind.in_venue else "/edit")
    for _method, _path, _handler in (
        ("GET", _list, show_list),
        ("GET", f"{_list}/new", show_new),
        ("POST", f"{_list}/new", submit),
        ("GET", _form_page, show_form),
        ("POST", _form_page, submit),
    ):
        router.add_api_route(_path, partial(_handler, _kind), methods=[_method])
for _kind in (VENUES, *IN_VENUES, CAMPAIGNS):
    router.add_api_route(f"{_kind.one_page}/delete", partial(remove, _kind), methods=["POST"])
    router.add_api_route(f"{_kind.one_page}/restore", partial(restore, _kind), methods=["POST"])
