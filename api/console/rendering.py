"""Renders templates. All values are escaped, and pages may load only the console's own files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from api.console.forms import split_delay, tag_text
from api.console.texts import Translations, display_time, display_zone
from catalog.models import WEEKDAYS
from catalog.plain_text import csv_text
from rules.parsing import DELAY_UNITS

PATH = "/console"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# With no-referrer, browsers would send `Origin: null` with a form, even to its own site.
_HEADERS = {"content-security-policy": _POLICY, "referrer-policy": "same-origin"}
# The account holder's own HTML: inline styles and images only, no script, no network, no access to
# the page around it.
_PREVIEW_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)


def rendered(
    template: str,
    texts: Translations,
    values: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Render a page, or one block of it: `overview.html#figures`. Templates find macros in `ui`."""
    name, _, block = template.partition("#")
    page, macros = (_TEMPLATES.get_template(each) for each in (name, "macros.html"))
    given = {"w": texts, **values}
    given["ui"] = macros.make_module(given)
    parts = page.blocks[block](page.new_context(given)) if block else [page.render(given)]
    return HTMLResponse("".join(parts), status, headers={**_HEADERS, **(headers or {})})


def previewed(content: str) -> Response:
    """The account holder's own HTML, for a sandboxed frame of the console."""
    headers = {"content-security-policy": _PREVIEW_POLICY, "x-frame-options": "SAMEORIGIN"}
    return HTMLResponse(content, headers=headers)


def csv_file(name: str, rows: Iterable[Sequence[Any]]) -> Response:
    """Rows as a file that the browser stores; no spreadsheet reads a text in it as a formula.

    The mark at its begin tells spreadsheets that it is UTF-8.
    """
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response("\ufeff" + csv_text(rows), media_type="text/csv", headers=headers)


def _fault(faults: Mapping[str, str], name: str) -> str:
    """The fault of a field, or of a part of it, such as tags[0].name."""
    parts = (f"{name}[", f"{name}.")
    found = (text for place, text in faults.items() if place == name or place.startswith(parts))
    return "; ".join(found)


_TEMPLATES = Environment(
    loader=PackageLoader("api.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.globals.update(
    console=PATH,
    fault=_fault,
    display_zone=display_zone,
    split_delay=split_delay,
    tag_text=tag_text,
    delay_units=list(DELAY_UNITS),
    weekdays=WEEKDAYS,
)
_TEMPLATES.filters.update(
    moment=display_time,
    number=lambda number: f"{number:,}".replace(",", "\u202f"),
)
