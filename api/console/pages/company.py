"""The company: its caps, quiet hours and time zone, and what it asks of visits."""

from typing import Any

from starlette.responses import Response

from api.console.context import PageContext
from api.console.forms import PostedForm, joined_delay
from api.console.interface import InterfaceReply
from api.console.session import Notice
from catalog.models import WEEKDAYS

_PATH = "/profile/company"
_MORE_ROWS = 2


async def show(context: PageContext) -> Response:
    """Show the form."""
    return _form(context, await context.interface.get(_PATH))


async def save(context: PageContext) -> Response:
    """Save the form."""
    values = submitted_rules(context.form)
    reply = await context.interface.call("PUT", _PATH, values)
    if reply.is_success:
        return context.redirect("/company", Notice("saved"))
    return _form(context, values, reply)


def submitted_rules(form: PostedForm) -> dict[str, Any]:
    """The submitted rules, as the interface takes them. A cap without a number is left out."""
    units, pers = form.all_values("per_unit"), form.all_values("per")
    caps = [
        {"max": most, "per": joined_delay(per, unit)}
        for most, per, unit in zip(form.all_values("max"), pers, units, strict=False)
        if most.strip()
    ]
    quiet: dict[str, Any] | None = form.texts(("start", "end"))
    if quiet == {"start": "", "end": ""}:
        quiet = None
    else:
        quiet = {**(quiet or {}), "weekdays": [day for day in WEEKDAYS if form.is_on(day)]}
    return {
        "time_zone": form.text("time_zone").strip(),
        "caps": caps,
        "quiet_hours": quiet,
        "presence": form.is_on("presence"),
        "visit_silence": form.number("visit_silence"),
    }


def _form(
    context: PageContext, values: dict[str, Any], refusal: InterfaceReply | None = None
) -> Response:
    rows = [*values["caps"], *[{"max": "", "per": "day"}] * _MORE_ROWS]
    quiet = values["quiet_hours"] or {"start": "", "end": "", "weekdays": WEEKDAYS}
    return context.form_page("company.html", "company", values, refusal, rows=rows, quiet=quiet)


PAGES = (("GET", "/company", show), ("POST", "/company", save))
