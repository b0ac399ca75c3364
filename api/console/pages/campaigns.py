"""Campaigns: the list with their states, the form, the preview."""

from html import escape
from typing import Any

from starlette.responses import RedirectResponse, Response

from api.console.context import PageContext
from api.console.errors import RefusedError
from api.console.interface import InterfaceReply
from api.console.pages.campaign_form import (
    new_campaign,
    redisplayed_campaign,
    stored_campaign,
    submitted_campaign,
)
from api.console.pages.campaign_state import campaign_state
from api.console.pages.campaign_week import week
from api.console.pages.listing import record_page
from api.console.pages.plots import daily_plot, last_days
from api.console.rendering import previewed
from api.console.session import PATH
from api.permissions import services_of

_A_PAGE = 20
_OFFERED = 500
_DAYS_SHOWN = 30


async def choose_venue(context: PageContext) -> Response:
    """Redirect to the campaigns of the chosen venue, or of the first one."""
    venues = await context.interface.get("/region", limit=_OFFERED)
    if not venues:
        return context.page("campaigns.html", venues=[], venue=None, found=None)
    number = context.query_number("venue") or venues[0]["id"]
    return RedirectResponse(f"{PATH}/venues/{number}/campaigns", 303)


async def show_list(context: PageContext) -> Response:
    """Show a venue's campaigns. Their states are loaded after the page."""
    number = context.path_number("id")
    found = await record_page(context, f"/lieu/{number}/campaign", size=_A_PAGE)
    venues = (
        await context.interface.get("/region", limit=_OFFERED) if context.may_read("venue") else []
    )
    venue = next((each for each in venues if each["id"] == number), {"id": number, "name": ""})
    return context.page("campaigns.html", venues=venues, venue=venue, found=found)


async def states(context: PageContext) -> Response:
    """Show the present states of the campaigns on one page of the list."""
    number = context.path_number("id")
    found = await record_page(context, f"/lieu/{number}/campaign", size=_A_PAGE)
    listed = {
        each["id"]: await campaign_state(context, number, each["id"]) for each in found.records
    }
    return context.page("part_states.html", states=listed)


async def show_new(context: PageContext) -> Response:
    """Show the form for a new campaign."""
    return await _form(context, new_campaign(services_of(context.request).clock().date()))


async def show_one(context: PageContext) -> Response:
    """Show the form of a campaign, its state and its results."""
    record = await context.interface.get(_path(context))
    return await _form(context, stored_campaign(record))


async def create(context: PageContext) -> Response:
    """Create a campaign from the form."""
    venue = context.path_number("id")
    values = submitted_campaign(context.form, await _zone(context))
    reply = await context.interface.call("POST", f"/lieu/{venue}/campaign", values)
    if reply.is_success:
        return context.redirect(f"/venues/{venue}/campaigns/{reply.body['id']}")
    return await _form(context, redisplayed_campaign(context.form, values), reply)


async def save(context: PageContext) -> Response:
    """Save the form of a campaign."""
    values = submitted_campaign(context.form, await _zone(context))
    reply = await context.interface.call("PUT", _path(context), values)
    if reply.is_success:
        return context.redirect(
            f"/venues/{context.path_number('id')}/campaigns/{context.path_number('uid')}"
        )
    redisplayed = redisplayed_campaign(context.form, values) | {"id": context.path_number("uid")}
    return await _form(context, redisplayed, reply)


async def remove(context: PageContext) -> Response:
    """Delete a campaign."""
    reply = await context.interface.call("DELETE", _path(context))
    if not reply.is_success:
        raise RefusedError(reply.status, reply.message)
    return context.redirect(f"/venues/{context.path_number('id')}/campaigns")


async def calendar(context: PageContext) -> Response:
    """Show the open hours of the campaign that the form has now."""
    return context.page("part_week.html", days=week(submitted_campaign(context.form, "")))


async def results(context: PageContext) -> Response:
    """Show what the campaign has sent, by day."""
    span = last_days(context, _DAYS_SHOWN)
    found = await context.interface.get(
        "/statistics/days", kind="campaign", id=context.path_number("uid"), **span
    )
    plot = daily_plot(found, ("visits", "notifications"), context.texts)
    return context.page("part_results.html", plot=plot, days=_DAYS_SHOWN)


async def preview(context: PageContext) -> Response:
    """Show the account holder's own content in a sandboxed frame."""
    record = await context.interface.get(_path(context))
    content = record["html"] if record["format"] == "html" else ""
    if not content:
        content = f"<pre>{escape(record['template'] or record['url'])}</pre>"
    return previewed(content)


def _path(context: PageContext) -> str:
    return f"/lieu/{context.path_number('id')}/campaign/{context.path_number('uid')}"


async def _zone(context: PageContext) -> str:
    """The venue's time zone; empty (UTC) if there is none, or if the account may not read it."""
    reply = await context.interface.call("GET", f"/region/{context.path_number('id')}")
    return str(reply.body["time_zone"]) if reply.is_success else ""


async def _form(
    context: PageContext, values: dict[str, Any], refusal: InterfaceReply | None = None
) -> Response:
    venue, number = context.path_number("id"), values.get("id")
    beacons: list[dict[str, Any]] = []
    if context.may_read("beacon"):
        reply = await context.interface.call(
            "GET", f"/region/{venue}/beacon", query={"limit": _OFFERED}
        )
        beacons = reply.body if reply.is_success else []
    chosen = {each["id"] for each in values["beacons"]}
    offered = {each["id"] for each in beacons}
    beacons += [each for each in values["beacons"] if each["id"] not in offered]
    return context.page(
        "campaign_form.html",
        200 if refusal is None else refusal.status,
        values=values,
        number=number,
        venue_id=venue,
        zone=await _zone(context),
        beacons=beacons,
        chosen=chosen,
        tags=", ".join(tag["name"] for tag in values["tags"]),
        days=week(values),
        state=None if number is None else await campaign_state(context, venue, number),
        faults={} if refusal is None else refusal.fields,
        message="" if refusal is None else refusal.message,
        may_write=context.may_write("campaign"),
    )


_ONE = "/venues/{id:int}/campaigns/{uid:int}"
PAGES = (
    ("GET", "/campaigns", choose_venue),
    ("GET", "/venues/{id:int}/campaigns", show_list),
    ("GET", "/venues/{id:int}/campaigns/states", states),
    ("GET", "/venues/{id:int}/campaigns/new", show_new),
    ("POST", "/venues/{id:int}/campaigns/new", create),
    ("POST", "/calendar", calendar),
    ("GET", _ONE, show_one),
    ("POST", _ONE, save),
    ("POST", f"{_ONE}/delete", remove),
    ("GET", f"{_ONE}/results", results),
    ("GET", f"{_ONE}/preview", preview),
)
