"""Campaigns: the list with their states, the form, the preview, and why one does not fire."""

from datetime import timedelta
from html import escape
from typing import Any, NamedTuple

from starlette.responses import RedirectResponse, Response

from api.console.context import PageContext
from api.console.forms import PostedForm, joined_delay, tag_names, tag_text
from api.console.interface import InterfaceReply, RefusedError
from api.console.pages.statistics import daily_plot, last_days
from api.console.rendering import previewed
from api.console.session import PATH, Notice
from api.console.texts import Translations, local_time, parse_time, start_of_day
from catalog.models import WEEKDAYS

_A_PAGE = 500
_STATES_AT_ONCE = 20
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
    found = await context.record_page(f"/lieu/{number}/campaign", size=_A_PAGE)
    venues = await context.venues()
    venue = next((each for each in venues if each["id"] == number), {"id": number, "name": ""})
    return context.page("campaigns.html", venues=venues, venue=venue, found=found)


async def states(context: PageContext) -> Response:
    """Show the present states of some campaigns of the list, and where the next ones are loaded."""
    number = context.path_number("id")
    found = await context.record_page(f"/lieu/{number}/campaign", size=_STATES_AT_ONCE)
    listed = {
        each["id"]: await campaign_state(context, number, each["id"]) for each in found.records
    }
    return context.page("campaigns.html#states", states=listed, next=found.next_address)


async def show_new(context: PageContext) -> Response:
    """Show the form for a new campaign; `copy` names one from which it begins."""
    values = new_campaign(context.now.date())
    if number := context.query_number("copy"):
        path = f"/lieu/{context.path_number('id')}/campaign/{number}"
        values |= stored_campaign(await context.interface.get(path))
        values["name"] = context.texts("copy_of", name=values["name"])[:255]
        del values["id"]
    return await _form(context, values)


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
        home = f"/venues/{venue}/campaigns/{reply.body['id']}"
        return context.redirect(home, Notice("created", reply.body["name"]))
    return await _form(context, redisplayed_campaign(context.form, values), reply)


async def save(context: PageContext) -> Response:
    """Save the form of a campaign."""
    values = submitted_campaign(context.form, await _zone(context))
    reply = await context.interface.call("PUT", _path(context), values)
    if reply.is_success:
        home = context.request.url.path.removeprefix(PATH)
        return context.redirect(home, Notice("saved", reply.body["name"]))
    redisplayed = redisplayed_campaign(context.form, values) | {"id": context.path_number("uid")}
    return await _form(context, redisplayed, reply)


async def remove(context: PageContext) -> Response:
    """Delete a campaign."""
    home = f"/venues/{context.path_number('id')}/campaigns"
    undo = f"{home}/{context.path_number('uid')}/restore"
    done = Notice("deleted", context.form.text("name"), undo)
    return await context.change("DELETE", _path(context), home, done=done)


async def restore(context: PageContext) -> Response:
    """Bring back a deleted campaign."""
    home = context.request.url.path.removeprefix(PATH).removesuffix("/restore")
    return await context.change("POST", f"{_path(context)}/restore", home, done=Notice("restored"))


async def switch(context: PageContext) -> Response:
    """Switch the chosen campaigns on or off; their other fields stay as they are."""
    venue, is_on = context.path_number("id"), context.form.text("active") == "1"
    chosen = context.form.numbers("chosen")
    for number in chosen:
        path = f"/lieu/{venue}/campaign/{number}"
        record = await context.interface.get(path)
        reply = await context.interface.call("PUT", path, record | {"active": is_on})
        if not reply.is_success:
            raise RefusedError(reply.status, f"{record['name']}: {reply.message}")
    return context.redirect(f"/venues/{venue}/campaigns", Notice("saved", str(len(chosen))))


async def calendar(context: PageContext) -> Response:
    """Show the open hours of the campaign that the form has now."""
    return context.page("campaign_form.html#week", days=week(submitted_campaign(context.form, "")))


async def results(context: PageContext) -> Response:
    """Show what the campaign has sent, by day."""
    span = last_days(context, _DAYS_SHOWN)
    found = await context.interface.get(
        "/statistics/days", kind="campaign", id=context.path_number("uid"), **span
    )
    plot = daily_plot(found, ("device_days", "notifications"), context.texts)
    return context.page("campaign_form.html#results", plot=plot, days=_DAYS_SHOWN)


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
    targets = {
        name: await _offered(context, kind, path, values[name])
        for name, (kind, path) in _TARGETS.items()
    }
    return context.form_page(
        "campaign_form.html",
        "campaign",
        values,
        refusal,
        number=number,
        venue_id=venue,
        zone=await _zone(context),
        targets=targets,
        chosen={name: {each["id"] for each in values[name]} for name in targets},
        tags=tag_text(tag["name"] for tag in values["tags"]),
        reached=reached_by_tag(values["tags"], targets),
        days=week(values),
        state=None if number is None else await campaign_state(context, venue, number),
    )


async def _offered(
    context: PageContext, kind: str, path: str, chosen: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The venue's places of a kind, with those that the campaign names already."""
    offered: list[dict[str, Any]] = []
    if context.may_read(kind):
        address = f"/region/{context.path_number('id')}/{path}"
        reply = await context.interface.call("GET", address, query={"limit": _OFFERED})
        offered = reply.body if reply.is_success else []
    known, first = {each["id"] for each in offered}, {each["id"] for each in chosen}
    listed = [*offered, *(each for each in chosen if each["id"] not in known)]
    return sorted(listed, key=lambda each: each["id"] not in first)


def reached_by_tag(
    tags: list[dict[str, Any]], targets: dict[str, list[dict[str, Any]]]
) -> dict[str, dict[str, int]]:
    """How many of the venue's places of each kind have each of the tags."""
    reached: dict[str, dict[str, int]] = {tag["name"]: {} for tag in tags}
    for kind, places in targets.items():
        for name in (tag["name"] for place in places for tag in place.get("tags", ())):
            if name in reached:
                reached[name][kind] = reached[name].get(kind, 0) + 1
    return reached


async def explain(context: PageContext) -> Response:
    """Show the checks in their order, and the next time at which the campaign would fire."""
    form = context.form
    question: dict[str, Any] = {}
    if form.text("at"):
        question["at"] = local_time(form.text("at"), form.text("zone"))
    if form.text("beacon"):
        question["beacon"] = form.number("beacon")
    for name in ("proximity", "udid"):
        if form.text(name):
            question[name] = form.text(name)
    reply = await context.interface.call("POST", f"{_path(context)}/explain", question)
    return context.page("campaign_form.html#explained", reply.status, reply=reply)


# The fields that name places: the kinds of record, and their paths in a venue.
_TARGETS = {
    "beacons": ("beacon", "beacon"),
    "geofencings": ("geofence", "geofencing"),
    "nfcs": ("nfc", "nfc"),
    "qrcodes": ("qrcode", "qrcode"),
}
_TEXTS = [
    "name",
    "title",
    "push",
    "format",
    "template",
    "url",
    "html",
    "start_time",
    "end_time",
    "on",
]
_YEAR = timedelta(days=365)


def new_campaign(today: Any) -> dict[str, Any]:
    """The initial values of the form for a new campaign."""
    texts = dict.fromkeys(_TEXTS, "")
    return {
        **texts,
        **dict.fromkeys(WEEKDAYS, True),
        "format": "url",
        "cache": "day",
        "on": "detection",
        "dwell_minutes": None,
        "priority": 5,
        "ignores_caps": False,
        "ignores_quiet_hours": False,
        "start_time": "09:00",
        "end_time": "18:00",
        "start_day": str(today),
        "end_day": str(today + _YEAR),
        "start": "",
        "end": "",
        "active": True,
        **{name: [] for name in _TARGETS},
        "tags": [],
    }


def stored_campaign(record: dict[str, Any]) -> dict[str, Any]:
    """The values of the form for a stored campaign."""
    days = {f"{name}_day": str(parse_time(record[name]).date()) for name in ("start", "end")}
    return record | days


def submitted_campaign(form: PostedForm, zone: str) -> dict[str, Any]:
    """The submitted campaign, as the body of a request to the interface.

    If a date was not changed, its stored instant is sent again, with the stored offset.
    """
    return {
        **form.texts(_TEXTS),
        **{name: _instant(form, name, zone) for name in ("start", "end")},
        **{day: form.is_on(day) for day in WEEKDAYS},
        **{name: form.is_on(name) for name in ("active", "ignores_caps", "ignores_quiet_hours")},
        "cache": joined_delay(form.text("cache"), form.text("cache_unit")),
        "dwell_minutes": form.number("dwell_minutes") if form.text("on") == "dwell" else None,
        "priority": form.number("priority"),
        **{name: form.numbers(name) for name in _TARGETS},
        "tags": [{"name": name} for name in tag_names(form.text("tags"))],
    }


def redisplayed_campaign(form: PostedForm, values: dict[str, Any]) -> dict[str, Any]:
    """The submitted values, to show the form again with the faults."""
    dates = {name: form.text(name) for name in ("start", "end", "start_day", "end_day")}
    places = {name: [{"id": number} for number in values[name]] for name in _TARGETS}
    return values | dates | places


def _instant(form: PostedForm, name: str, zone: str) -> str:
    stored, day = form.text(name), form.text(f"{name}_day")
    return stored if day and stored.startswith(f"{day}T") else start_of_day(day, zone)


_WAITS = ("not_started", "wrong_weekday", "outside_hours")


class StateText(NamedTuple):
    """A sentence about a state, and its style: good, waiting or off."""

    kind: str
    text: str


async def campaign_state(context: PageContext, venue_id: int, number: int) -> StateText:
    """The present state, for a device without claims in the zone that the beacon requires."""
    reply = await context.interface.call("POST", f"/lieu/{venue_id}/campaign/{number}/explain", {})
    if not reply.is_success:
        return StateText("off", reply.message)
    reason, next_at = reply.body["reason"], reply.body["next_at"]
    if reason == "granted":
        return StateText("good", context.texts("state_sends"))
    if reason in _WAITS and next_at:
        return StateText("waiting", _opens(reply.body["at"], next_at, context.texts))
    return StateText("off", context.texts.get(f"state_{reason}"))


def _opens(now: str, written: str, texts: Translations) -> str:
    """Opens today at 17:00; opens Friday at 09:00; opens on 2026-12-24 at 09:00."""
    at, today = parse_time(written), parse_time(now).date()
    days = (at.date() - today).days
    clock = f"{at:%H:%M}"
    if days == 0:
        return texts("opens_today", clock=clock)
    if days < 7:
        return texts("opens_weekday", day=texts(WEEKDAYS[at.weekday()]), clock=clock)
    return texts("opens_date", day=str(at.date()), clock=clock)


_DAY = 24 * 60


def week(campaign: dict[str, Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    """The open intervals of each weekday, in minutes; their ends are excluded.

    Hours that run over midnight belong to the weekday on which they begin, so their second part is
    shown on the next day.
    """
    begin, until = _minute(campaign["start_time"]), _minute(campaign["end_time"])
    if begin is None or until is None:
        return []
    days = []
    for place, day in enumerate(WEEKDAYS):
        intervals = []
        if begin > until and campaign[WEEKDAYS[place - 1]] and until:
            intervals.append((0, until))
        if campaign[day]:
            last = until if begin < until else _DAY
            intervals.append((0, _DAY) if begin == until else (begin, last))
        days.append((day, intervals))
    return days


def _minute(text: str) -> int | None:
    hours, _, minutes = text.partition(":")
    if not (text.isascii() and hours.isdigit() and minutes.isdigit() and len(text) <= 5):
        return None
    minute = int(hours) * 60 + int(minutes)
    return minute if minute <= _DAY else None


_ONE = "/venues/{id:int}/campaigns/{uid:int}"
PAGES = (
    ("GET", "/campaigns", choose_venue),
    ("GET", "/venues/{id:int}/campaigns", show_list),
    ("GET", "/venues/{id:int}/campaigns/states", states),
    ("GET", "/venues/{id:int}/campaigns/new", show_new),
    ("POST", "/venues/{id:int}/campaigns/new", create),
    ("POST", "/venues/{id:int}/campaigns/switch", switch),
    ("POST", "/calendar", calendar),
    ("GET", _ONE, show_one),
    ("POST", _ONE, save),
    ("POST", f"{_ONE}/delete", remove),
    ("POST", f"{_ONE}/restore", restore),
    ("GET", f"{_ONE}/results", results),
    ("GET", f"{_ONE}/preview", preview),
    ("POST", f"{_ONE}/explain", explain),
)
