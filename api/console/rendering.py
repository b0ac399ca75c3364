"""Renders templates. All values are escaped, and pages may load only the console's own files."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from api.console import times
from api.console.assets import asset_address
from api.console.session import FORGERY_FIELD, PATH
from api.console.translations import LANGUAGES, Translations

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
    template: str, texts: Translations, values: Mapping[str, Any], status: int = 200
) -> Response:
    """Render a template as a response."""
    text = _environment().get_template(template).render(w=texts, **values)
    return HTMLResponse(text, status, headers=_HEADERS)


def previewed(content: str) -> Response:
    """The account holder's own HTML, for a sandboxed frame of the console."""
    headers = {"content-security-policy": _PREVIEW_POLICY, "x-frame-options": "SAMEORIGIN"}
    return HTMLResponse(content, headers=headers)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("api.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(
        asset=asset_address,
        console=PATH,
        fault=_fault,
        forgery_field=FORGERY_FIELD,
        languages=LANGUAGES,
        display_zone=times.display_zone,
    )
    environment.filters.update(
        moment=times.display_time,
        clock=times.display_clock,
        number=lambda number: f"{number:,}".replace(",", "\u202f"),
        json=_json,
    )
    return environment


def _json(value: Any) -> str:
    """JSON for an attribute, which is escaped as all values are."""
    return orjson.dumps(value).decode()


def _fault(faults: Mapping[str, str], name: str) -> str:
    """The fault of a field, or of a part of it, such as tags[0].name."""
    places = (name, f"{name}[", f"{name}.")
    return "; ".join(
        message
        for place, message in faults.items()
        if place == name or place.startswith(places[1:])
    )
