"""The company's caps, quiet hours and time zone; the connector with a test call and its calls."""

from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from api.answers import ApiError
from api.console.context import Context, Notice, PageContext
from api.console.forms import PostedForm, joined_delay
from catalog.models import WEEKDAYS

router = APIRouter()
_COMPANY = "/profile/company"
_MORE_ROWS = 2
_NEW = {"method": "POST", "auth": "header", "parameters": "[]"}
_NOT_SET_UP = 404


@router.get("/company")
async def show_company(context: Context) -> Response:
    """Show the form of the company's rules."""
    return _company_form(context, await context.get(_COMPANY))


@router.post("/company")
async def save_company(context: Context) -> Response:
    """Save the form of the company's rules."""
    values = submitted_rules(context.form)
    try:
        await context.ask("PUT", _COMPANY, values)
    except ApiError as refusal:
        return _company_form(context, values, refusal)
    return context.redirect("/company", Notice("saved"))


def submitted_rules(form: PostedForm) -> dict[str, Any]:
    """The submitted rules, as the interface takes them. A cap without a number is left out."""
    caps = zip(form.getlist("max"), form.getlist("per"), form.getlist("per_unit"), strict=False)
    quiet = {"start": form.get("start", ""), "end": form.get("end", "")}
    weekdays = [day for day in WEEKDAYS if day in form]
    return {
        "time_zone": form.get("time_zone", "").strip(),
        "caps": [
            {"max": most, "per": joined_delay(per, unit)}
            for most, per, unit in caps
            if most.strip()
        ],
        "quiet_hours": quiet | {"weekdays": weekdays} if any(quiet.values()) else None,
        "presence": "presence" in form,
        "visit_silence": form.get("visit_silence") or None,
    }


def _company_form(
    context: PageContext, values: dict[str, Any], refusal: ApiError | None = None
) -> Response:
    rows = [*values["caps"], *[{"max": "", "per": "day"}] * _MORE_ROWS]
    quiet = values["quiet_hours"] or {"start": "", "end": "", "weekdays": WEEKDAYS}
    return context.form_page("company.html", "company", values | quiet, refusal, rows=rows)


@router.get("/connector")
async def show_connector(context: Context) -> Response:
    """Show the form with the stored connector."""
    try:
        return _connector_form(context, await context.get("/connector"))
    except ApiError as error:
        if error.status != _NOT_SET_UP:
            raise
    return _connector_form(context, _NEW)


@router.post("/connector")
async def save_connector(context: Context) -> Response:
    """Save the form. The fault of each refused field is shown beside the field."""
    form, values = context.form, dict(context.form)
    pairs = zip(form.getlist("key"), form.getlist("value"), strict=False)
    parameters = [{"key": key, "value": value} for key, value in pairs if key or value]
    values["parameters"] = orjson.dumps(parameters).decode()
    if not form.get("secret"):
        values.pop("secret", None)  # the stored one stays
    try:
        await context.ask("PUT", "/connector", values)
    except ApiError as refusal:
        return _connector_form(context, values, refusal)
    return context.redirect("/connector", Notice("saved", form["name"]))


def _connector_form(
    context: PageContext, values: dict[str, Any], refusal: ApiError | None = None
) -> Response:
    pairs = orjson.loads(values["parameters"])
    return context.form_page("connector.html", "connector", values, refusal, pairs=pairs)


@router.post("/connector/delete")
async def remove_connector(context: Context) -> Response:
    """Delete the connector."""
    await context.ask("DELETE", "/connector")
    return context.redirect("/connector", Notice("deleted"))


@router.post("/connector/test")
async def test_connector(context: Context) -> Response:
    """Make a test call, and show the request and the reply."""
    trial = await context.ask("POST", "/connector/test")
    return context.page("connector.html#trial", trial=trial)


@router.get("/connector/calls")
async def show_calls(context: Context) -> Response:
    """Show the last calls and the state of the breaker."""
    return context.page("connector.html#calls", **await context.get("/connector/calls"))
