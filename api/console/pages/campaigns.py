"""Campaigns: the list with what each does now, the form, the preview."""

from html import escape
from typing import Any

from starlette.responses import RedirectResponse, Response

from api.console.errors import RefusedError
from api.console.interface import InterfaceReply
from api.console.pages.campaign_form import (
    given_campaign,
    new_campaign,
    stored_campaign,
    typed_campaign,
)
from api.console.pages.campaign_state import state_of
from api.console.pages.hours import week
from api.console.pages.listing import record_page
from api.console.pages.plots import last_days, plot_of
from api.console.rendering import previewed
from api.console.session import PATH
from api.console.visit import Visit
from api.permissions import services_of

_A_PAGE = 20
_OFFERED = 500
_DAYS_SHOWN = 30


async def choose_venue(visit: Visit) -> Response:
    """Campaigns are a venue's: those of the first one, or of the one that was chosen."""
    venues = await visit.interface.read("/region", limit=_OFFERED)
    if not venues:
        return visit.page("campaigns.html", venues=[], venue=None, found=None)
    number = visit.count("venue") or venues[0]["id"]
    return RedirectResponse(f"{PATH}/venues/{number}/campaigns", 303)


async def show_list(visit: Visit) -> Response:
    """A venue's campaigns; what each does now comes behind."""
    number = visit.number("id")
    found = await record_page(visit, f"/lieu/{number}/campaign", size=_A_PAGE)
    venues = (
        await visit.interface.read("/region", limit=_OFFERED) if visit.may_read("venue") else []
    )
    venue = next((each for each in venues if each["id"] == number), {"id": number, "name": ""})
    return visit.page("campaigns.html", venues=venues, venue=venue, found=found)


async def states(visit: Visit) -> Response:
    """What the campaigns of one page of the list do now."""
    number = visit.number("id")
    found = await record_page(visit, f"/lieu/{number}/campaign", size=_A_PAGE)
    listed = {each["id"]: await state_of(visit, number, each["id"]) for each in found.records}
    return visit.page("part_states.html", states=listed)


async def show_new(visit: Visit) -> Response:
    """The form of a new campaign."""
    return await _form(visit, new_campaign(services_of(visit.request).clock().date()))


async def show_one(visit: Visit) -> Response:
    """The form of a campaign, its state, its results."""
    record = await visit.interface.read(_path(visit))
    return await _form(visit, stored_campaign(record))


async def create(visit: Visit) -> Response:
    """POST what was typed."""
    venue = visit.number("id")
    given = given_campaign(visit.form, await _zone(visit))
    reply = await visit.interface.call("POST", f"/lieu/{venue}/campaign", given)
    if reply.is_good:
        return visit.leave(f"/venues/{venue}/campaigns/{reply.body['id']}")
    return await _form(visit, typed_campaign(visit.form, given), reply)


async def save(visit: Visit) -> Response:
    """PUT what was typed."""
    given = given_campaign(visit.form, await _zone(visit))
    reply = await visit.interface.call("PUT", _path(visit), given)
    if reply.is_good:
        return visit.leave(f"/venues/{visit.number('id')}/campaigns/{visit.number('uid')}")
    typed = typed_campaign(visit.form, given) | {"id": visit.number("uid")}
    return await _form(visit, typed, reply)


async def remove(visit: Visit) -> Response:
    """Delete it."""
    reply = await visit.interface.call("DELETE", _path(visit))
    if not reply.is_good:
        raise RefusedError(reply.status, reply.message)
    return visit.leave(f"/venues/{visit.number('id')}/campaigns")


async def calendar(visit: Visit) -> Response:
    """The week of what is typed now."""
    return visit.page("part_week.html", days=week(given_campaign(visit.form, "")))


async def results(visit: Visit) -> Response:
    """What the campaign has sent, by day."""
    span = last_days(visit, _DAYS_SHOWN)
    found = await visit.interface.read(
        "/statistics/days", kind="campaign", id=visit.number("uid"), **span
    )
    plot = plot_of(found, ("visits", "notifications"), visit.words)
    return visit.page("part_results.html", plot=plot, days=_DAYS_SHOWN)


async def preview(visit: Visit) -> Response:
    """What the holder wrote, for a frame that lets it do nothing."""
    record = await visit.interface.read(_path(visit))
    content = record["html"] if record["format"] == "html" else ""
    if not content:
        content = f"<pre>{escape(record['template'] or record['url'])}</pre>"
    return previewed(content)


def _path(visit: Visit) -> str:
    return f"/lieu/{visit.number('id')}/campaign/{visit.number('uid')}"


async def _zone(visit: Visit) -> str:
    """The venue's time zone; UTC where there is none, or none that the account may read."""
    reply = await visit.interface.call("GET", f"/region/{visit.number('id')}")
    return str(reply.body["time_zone"]) if reply.is_good else ""


async def _form(
    visit: Visit, given: dict[str, Any], refusal: InterfaceReply | None = None
) -> Response:
    venue, number = visit.number("id"), given.get("id")
    beacons: list[dict[str, Any]] = []
    if visit.may_read("beacon"):
        reply = await visit.interface.call(
            "GET", f"/region/{venue}/beacon", query={"limit": _OFFERED}
        )
        beacons = reply.body if reply.is_good else []
    chosen = {each["id"] for each in given["beacons"]}
    offered = {each["id"] for each in beacons}
    beacons += [each for each in given["beacons"] if each["id"] not in offered]
    return visit.page(
        "campaign_form.html",
        200 if refusal is None else refusal.status,
        given=given,
        number=number,
        venue_id=venue,
        zone=await _zone(visit),
        beacons=beacons,
        chosen=chosen,
        tags=", ".join(tag["name"] for tag in given["tags"]),
        days=week(given),
        state=None if number is None else await state_of(visit, venue, number),
        faults={} if refusal is None else refusal.fields,
        message="" if refusal is None else refusal.message,
        may_write=visit.may_write("campaign"),
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
