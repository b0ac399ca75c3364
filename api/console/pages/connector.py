"""The connector: its form, a test call, and the last calls."""

from typing import Any

import orjson
from starlette.responses import Response

from api.console.context import PageContext
from api.console.interface import InterfaceReply, RefusedError
from api.console.session import Notice

_NEW = {"name": "", "url": "", "method": "POST", "auth": "header", "parameters": "[]"}
_TEXTS = ("name", "url", "method", "auth")
_NOT_SET_UP = 404


async def show(context: PageContext) -> Response:
    """Show the form with the stored connector."""
    reply = await context.interface.call("GET", "/connector")
    if reply.status == _NOT_SET_UP:
        return _form(context, _NEW | {"signed": False}, is_new=True)
    if not reply.is_success:
        raise RefusedError(reply.status, reply.message)
    return _form(context, reply.body, is_new=False)


async def save(context: PageContext) -> Response:
    """Save the form. The fault of each refused field is shown beside the field."""
    form = context.form
    values: dict[str, Any] = form.texts(_TEXTS)
    values["parameters"] = orjson.dumps(_pairs(context)).decode()
    if form.text("secret"):
        values["secret"] = form.text("secret")
    reply = await context.interface.call("PUT", "/connector", values)
    if reply.is_success:
        return context.redirect("/connector", Notice("saved", values["name"]))
    shown = values | {"signed": form.is_on("signed")}
    return _form(context, shown, is_new=form.is_on("is_new"), refusal=reply)


async def remove(context: PageContext) -> Response:
    """Delete the connector."""
    return await context.change("DELETE", "/connector", "/connector", done=Notice("deleted"))


async def test_connector(context: PageContext) -> Response:
    """Make a test call, and show the request and the reply."""
    return context.page(
        "connector.html#trial", reply=await context.interface.call("POST", "/connector/test")
    )


async def calls(context: PageContext) -> Response:
    """Show the last calls and the state of the breaker."""
    return context.page(
        "connector.html#calls", reply=await context.interface.call("GET", "/connector/calls")
    )


def _form(
    context: PageContext,
    values: dict[str, Any],
    *,
    is_new: bool,
    refusal: InterfaceReply | None = None,
) -> Response:
    pairs = orjson.loads(values["parameters"])
    return context.form_page(
        "connector.html", "connector", values, refusal, pairs=pairs, is_new=is_new
    )


def _pairs(context: PageContext) -> list[dict[str, str]]:
    """The submitted parameters, without empty ones."""
    keys, values = context.form.all_values("key"), context.form.all_values("value")
    pairs = zip(keys, values, strict=False)
    return [{"key": key, "value": value} for key, value in pairs if key or value]


PAGES = (
    ("GET", "/connector", show),
    ("POST", "/connector", save),
    ("POST", "/connector/delete", remove),
    ("POST", "/connector/test", test_connector),
    ("GET", "/connector/calls", calls),
)
