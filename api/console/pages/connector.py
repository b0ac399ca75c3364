"""The connector: its set-up, one call to try it, and how the last ones went."""

from typing import Any

import orjson
from starlette.responses import Response

from api.console.errors import RefusedError
from api.console.interface import InterfaceReply
from api.console.visit import Visit

_NEW = {"name": "", "url": "", "method": "POST", "auth": "header", "parameters": "[]"}
_TEXTS = ("name", "url", "method", "auth")
_NOT_SET_UP = 404


async def show(visit: Visit) -> Response:
    """The form, filled with what is stored."""
    reply = await visit.interface.call("GET", "/connector")
    if reply.status == _NOT_SET_UP:
        return _form(visit, _NEW | {"signed": False}, is_new=True)
    if not reply.is_good:
        raise RefusedError(reply.status, reply.message)
    return _form(visit, reply.body, is_new=False)


async def save(visit: Visit) -> Response:
    """Save the form; each field that the interface refuses gets its message beside it."""
    form = visit.form
    given: dict[str, Any] = form.texts(_TEXTS)
    given["parameters"] = orjson.dumps(_pairs(visit)).decode()
    if form.text("secret"):
        given["secret"] = form.text("secret")
    reply = await visit.interface.call("PUT", "/connector", given)
    if reply.is_good:
        return visit.leave("/connector")
    shown = given | {"signed": form.is_on("signed")}
    return _form(visit, shown, is_new=form.is_on("is_new"), refusal=reply)


async def remove(visit: Visit) -> Response:
    """Delete it."""
    reply = await visit.interface.call("DELETE", "/connector")
    if not reply.is_good:
        raise RefusedError(reply.status, reply.message)
    return visit.leave("/connector")


async def try_it(visit: Visit) -> Response:
    """One call; what was sent and what came back."""
    return visit.page(
        "part_trial.html", reply=await visit.interface.call("POST", "/connector/test")
    )


async def calls(visit: Visit) -> Response:
    """The last calls, and the breaker in words."""
    return visit.page(
        "part_calls.html", reply=await visit.interface.call("GET", "/connector/calls")
    )


def _form(
    visit: Visit, given: dict[str, Any], *, is_new: bool, refusal: InterfaceReply | None = None
) -> Response:
    pairs = orjson.loads(given["parameters"])
    return visit.page(
        "connector.html",
        200 if refusal is None else refusal.status,
        given=given,
        pairs=pairs,
        is_new=is_new,
        faults={} if refusal is None else refusal.fields,
        message="" if refusal is None else refusal.message,
        may_write=visit.may_write("connector"),
    )


def _pairs(visit: Visit) -> list[dict[str, str]]:
    """The parameters that have a name or a value."""
    keys, values = visit.form.listed("key"), visit.form.listed("value")
    pairs = zip(keys, values, strict=False)
    return [{"key": key, "value": value} for key, value in pairs if key or value]


PAGES = (
    ("GET", "/connector", show),
    ("POST", "/connector", save),
    ("POST", "/connector/delete", remove),
    ("POST", "/connector/test", try_it),
    ("GET", "/connector/calls", calls),
)
