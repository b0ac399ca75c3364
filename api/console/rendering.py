"""Renders templates: everything is escaped, and the page may load nothing but the console's own."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from api.console import moments
from api.console.assets import asset_address
from api.console.session import FORGERY_FIELD, PATH
from api.console.words import LANGUAGES, PageWords

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# Without a referrer at all browsers call the origin of a form null, also to its own site.
_HEADERS = {"content-security-policy": _POLICY, "referrer-policy": "same-origin"}
# What a holder wrote for phones: its styles and pictures within itself, no script, no network, no
# access to the page around it.
_PREVIEW_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)


def rendered(
    template: str, words: PageWords, values: Mapping[str, Any], status: int = 200
) -> Response:
    """A page."""
    text = _environment().get_template(template).render(w=words, **values)
    return HTMLResponse(text, status, headers=_HEADERS)


def previewed(content: str) -> Response:
    """A holder's own html, for a sandboxed frame of the console."""
    headers = {"content-security-policy": _PREVIEW_POLICY, "x-frame-options": "SAMEORIGIN"}
    return HTMLResponse(content, headers=headers)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("api.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(
        asset=asset_address,
        console=PATH,
        fault=_fault,
        forgery_field=FORGERY_FIELD,
        languages=LANGUAGES,
        shown_zone=moments.shown_zone,
    )
    made.filters.update(
        moment=moments.shown_moment,
        clock=moments.shown_clock,
        number=lambda number: f"{number:,}".replace(",", "\u202f"),
        json=_json,
    )
    return made


def _json(value: Any) -> str:
    """For an attribute, which is escaped as everything is."""
    return orjson.dumps(value).decode()


def _fault(faults: Mapping[str, str], name: str) -> str:
    """What is wrong with a field, or with something in it, as tags[0].name."""
    places = (name, f"{name}[", f"{name}.")
    return "; ".join(
        message
        for place, message in faults.items()
        if place == name or place.startswith(places[1:])
    )
