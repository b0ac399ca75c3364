"""Venues, and the beacons, geofences, NFC tags and QR codes in them: their lists and forms."""

import io
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import httpx
import segno
from starlette.responses import Response

from api.console.context import PageContext
from api.console.forms import PostedForm, tag_names, tag_text
from api.console.session import PATH, Notice


class FormField(NamedTuple):
    """A field of a form.

    `kind` is text, number (whole), decimal, proximity, flag or tags; `label` and `hint` are texts
    by their keys, or the words themselves. Half fields stand side by side.
    """

    name: str
    label: str
    kind: str = "text"
    required: bool = False
    half: bool = False
    hint: str = ""

    def shown(self, values: Mapping[str, Any]) -> Any:
        """The value as the input shows it."""
        value = values[self.name]
        if self.kind == "tags":
            return tag_text(value)
        if self.kind == "flag":
            return int(value)
        return "" if value is None else value

    def submitted(self, form: Mapping[str, str]) -> Any:
        """The value of a posted form, as the interface takes it."""
        text = form.get(self.name, "")
        if self.kind == "tags":
            return tag_names(text)
        if self.kind == "decimal":
            return text.strip().replace(",", ".")
        return text.strip() or None if self.kind == "number" else text

    def plain(self, text: Any) -> Any:
        """The text in a form in which equal values are equal."""
        if self.kind == "tags":
            return sorted(tag["name"] for tag in tag_names(text))
        if self.kind == "flag":
            return str(text).lower() in ("1", "true")
        if self.kind == "decimal":
            return str(text).strip().replace(",", ".")
        return text.replace("-", "").lower() if self.name == "uuid" else str(text)

    def empty(self) -> Any:
        """The value of a new record."""
        special = {"flag": True, "tags": [], "number": None, "proximity": "near"}
        return special.get(self.kind, "")


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

    def submitted(self, form: PostedForm) -> dict[str, Any]:
        """The record in a posted form."""
        values = {each.name: each.submitted(form) for each in self.fields}
        return {"active": "active" in form, **values}


_NAME = FormField("name", "name", required=True)
_TAGS = FormField("tags", "tags", "tags", hint="tags_hint")
VENUES = RecordKind(
    "venue",
    "/region",
    (
        _NAME,
        FormField("address", "address"),
        FormField("time_zone", "time_zone", hint="Europe/Paris"),
        FormField("visit_silence", "visit_silence", "number", hint="visit_silence_hint"),
        FormField("width", "width", "number", half=True),
        FormField("height", "height", "number", half=True),
        FormField("image", "image", hint="image_hint"),
    ),
    ("name", "address", "time_zone", "width", "active"),
)
BEACONS = RecordKind(
    "beacon",
    "/region/{id}/beacon",
    (
        _NAME,
        FormField("uuid", "UUID", required=True),
        FormField("major", "Major", "number", required=True, half=True),
        FormField("minor", "Minor", "number", required=True, half=True),
        FormField("proximity", "proximity", "proximity", hint="proximity_hint"),
        FormField("x", "x", "number", half=True),
        FormField("y", "y", "number", half=True),
        FormField("color", "color", half=True, hint="#0a7d6c"),
        _TAGS._replace(half=True),
    ),
    ("name", "proximity", "-tags", "x", "uuid", "major", "minor", "active"),
)
GEOFENCES = RecordKind(
    "geofence",
    "/region/{id}/geofencing",
    (
        _NAME,
        FormField("latitude", "latitude", "decimal", required=True, half=True),
        FormField("longitude", "longitude", "decimal", required=True, half=True),
        FormField("radius", "radius", "number", required=True, hint="radius_hint"),
        _TAGS,
    ),
    ("name", "latitude", "longitude", "radius", "-tags", "active"),
)
NFCS, QRCODES = (
    RecordKind(
        record,
        f"/region/{{id}}/{record}",
        (_NAME, FormField("value", "value", required=True, hint="value_hint"), _TAGS),
        ("name", "value", "-tags", "active"),
    )
    for record in ("nfc", "qrcode")
)
IN_VENUES = (BEACONS, GEOFENCES, NFCS, QRCODES)


async def venue_of(context: PageContext) -> dict[str, Any]:
    """The venue of the path; without a name if the account may not read it."""
    number = context.path_number("id")
    if context.may_read("venue"):
        return dict(await context.get(f"/region/{number}"))
    unknown = dict.fromkeys(("name", "time_zone", "image"), "") | {"width": None, "height": None}
    return {"id": number, "active": True, **unknown}


async def show_list(kind: RecordKind, context: PageContext) -> Response:
    """Show the records, with a search over all of them."""
    found = await context.listed(kind.list_path(context))
    venue = await venue_of(context) if kind.in_venue else None
    return context.page("records.html", kind=kind, venue=venue, found=found)


async def show_new(kind: RecordKind, context: PageContext) -> Response:
    """Show the form for a new record."""
    values = {"active": True, **{each.name: each.empty() for each in kind.fields}}
    return _form(context, kind, values)


async def show_form(kind: RecordKind, context: PageContext) -> Response:
    """Show the form of a record."""
    return _form(context, kind, await context.get(kind.one_path(context)))


async def submit(kind: RecordKind, context: PageContext) -> Response:
    """Create a record from the form, or save it."""
    values, is_new = kind.submitted(context.form), context.path.endswith("/new")
    path = kind.list_path(context) if is_new else kind.one_path(context)
    reply = await context.call("POST" if is_new else "PUT", path, values)
    if not reply.is_success:
        return _form(context, kind, values, reply)
    page = kind.page(context) if kind.in_venue else f"/venues/{reply.json()['id']}"
    return context.redirect(page, Notice("created" if is_new else "saved", values["name"]))


async def remove(kind: RecordKind, context: PageContext) -> Response:
    """Delete a record; a venue with its beacons, geofences and campaigns."""
    undo = context.path.removesuffix("delete") + "restore"
    done = Notice("deleted", context.form.get("name", ""), undo)
    return await context.change("DELETE", kind.one_path(context), kind.page(context), done=done)


async def restore(kind: RecordKind, context: PageContext) -> Response:
    """Bring back a deleted record."""
    path = f"{kind.one_path(context)}/restore"
    return await context.change("POST", path, kind.page(context), done=Notice("restored"))


async def show_qr_code(context: PageContext) -> Response:
    """The image of a QR code, to print."""
    image = io.BytesIO()
    record = await context.get(QRCODES.one_path(context))
    segno.make_qr(record["value"]).save(image, kind="svg", scale=8)
    return Response(image.getvalue(), media_type="image/svg+xml")


def _form(
    context: PageContext,
    kind: RecordKind,
    values: dict[str, Any],
    refusal: httpx.Response | None = None,
) -> Response:
    home = PATH + kind.page(context)
    is_new = context.path.endswith("/new")
    removal = "" if is_new else PATH + context.path.removesuffix("/edit") + "/delete"
    return context.form_page(
        "record_form.html", kind.record, values, refusal, kind=kind, home=home, removal=removal
    )


def _pages(kind: RecordKind) -> tuple[tuple[str, str, Any], ...]:
    listed = f"/venues/{{id:int}}/{kind.many}" if kind.in_venue else "/venues"
    one = f"{listed}/{{uid:int}}" if kind.in_venue else "/venues/{id:int}"
    form = one if kind.in_venue else f"{one}/edit"
    return (
        ("GET", listed, partial(show_list, kind)),
        ("GET", f"{listed}/new", partial(show_new, kind)),
        ("POST", f"{listed}/new", partial(submit, kind)),
        ("GET", form, partial(show_form, kind)),
        ("POST", form, partial(submit, kind)),
        ("POST", f"{one}/delete", partial(remove, kind)),
        ("POST", f"{one}/restore", partial(restore, kind)),
    )


PAGES = (
    *(page for kind in (VENUES, *IN_VENUES) for page in _pages(kind)),
    ("GET", "/venues/{id:int}/qrcodes/{uid:int}/image", show_qr_code),
)
