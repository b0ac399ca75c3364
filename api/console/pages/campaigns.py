"""Campaigns: the list with their states, the form, the preview, and why one does not fire."""

from datetime import date, datetime, timedelta
from html import escape
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from api.answers import ApiError
from api.console.context import A_PAGE, Context, Notice, PageContext
from api.console.forms import PostedForm, joined_delay, tag_names
from api.console.pages.records import CAMPAIGNS, IN_VENUES, ON_THE_PLAN, store, venue_of
from api.console.pages.statistics import figures_of, last_days
from api.console.rendering import previewed
from api.console.texts import Translations, local_time
from catalog.models import WEEKDAYS

router = APIRouter()
_RESULT_DAYS = 30
_LIST = "/venues/{id:int}/campaigns"
_ONE = f"{_LIST}/{{uid:int}}"


@router.get("/campaigns")
async def choose_venue(context: Context) -> Response:
    """Redirect to the campaigns of the chosen venue, or of the first one; else to the venues."""
    number = context.query_number("venue")
    if not number:
        venues = await context.get("/region", sort="name", limit=1)
        number = venues[0]["id"] if venues else 0
    return context.redirect(f"/venues/{number}/campaigns" if number else "/venues")


@router.get(_LIST)
async def show_list(context: Context) -> Response:
    """Show a venue's campaigns. Their states are loaded after the page."""
    found = await context.listed(CAMPAIGNS.list_path(context))
    venues, venue = await context.venues(), await venue_of(context)
    return context.page("campaigns.html", venues=venues, venue=venue, found=found)


@router.get(f"{_LIST}/states")
async def states(context: Context) -> Response:
    """Show the present states of some campaigns of the list."""
    venue = context.path_number("id")
    chosen = [each for each in context.request.query_params.getlist("of") if each.isdecimal()]
    found = {
        number: await campaign_state(context, venue, int(number)) for number in chosen[:A_PAGE]
    }
    return context.page("campaigns.html#states", states=found)


@router.get(f"{_LIST}/new")
async def show_new(context: Context) -> Response:
    """Show the form for a new campaign; `copy` names one from which it begins."""
    values = new_campaign(context.now.date())
    if number := context.query_number("copy"):
        values = stored_campaign(await context.get(f"{CAMPAIGNS.list_path(context)}/{number}"))
        values["name"] = context.texts("copy_of", name=values["name"])[:255]
    return await _form(context, values)


@router.get(_ONE)
async def show_one(context: Context) -> Response:
    """Show the form of a campaign, its state and its results."""
    return await _form(context, stored_campaign(await context.get(CAMPAIGNS.one_path(context))))


@router.post(_ONE)
@router.post(f"{_LIST}/new")
async def submit(context: Context) -> Response:
    """Create a campaign from the form, or save it."""
    values = submitted_campaign(context.form, (await venue_of(context))["time_zone"])
    try:
        stored = await store(CAMPAIGNS, context, values)
    except ApiError as refusal:
        sent, mark = context.form, "unsent-"  # console.js
        unsent = {name.removeprefix(mark): sent[name] for name in sent if name.startswith(mark)}
        return await _form(context, values | unsent, refusal)
    done = Notice("created" if context.is_new else "saved", stored["name"])
    return context.redirect(f"{CAMPAIGNS.page(context)}/{stored['id']}", done)


@router.post(f"{_LIST}/switch")
async def switch(context: Context) -> Response:
    """Switch the chosen campaigns on or off; their other fields stay as they are."""
    chosen, is_on = context.form.getlist("chosen"), context.form.get("active") == "1"
    for number in chosen:
        path = f"{CAMPAIGNS.list_path(context)}/{number}"
        record = await context.get(path)
        await context.ask("PUT", path, record | {"active": is_on})
    return context.redirect(CAMPAIGNS.page(context), Notice("saved", str(len(chosen))))


@router.get(f"{_ONE}/results")
async def results(context: Context) -> Response:
    """Show what the campaign has sent, by day, and what held it back."""
    number, span = context.path_number("uid"), last_days(context.now.date(), _RESULT_DAYS)
    days = await context.get("/statistics/days", kind="campaign", id=number, **span)
    reasons = await context.get("/statistics/reasons", campaign=number, limit=0, **span)
    return context.page(
        "campaign_form.html#results",
        figures=figures_of(days, span)[1:],  # detections are counted for places alone
        span=span,
        reasons=[each for each in reasons if each["reason"] != "granted"],
    )


@router.post("/preview")
async def preview(context: Context) -> Response:
    """Show the account holder's own texts and content, as the form has them."""
    form, kind = context.form, context.form.get("format", "")
    title, push = (escape(form.get(name, "")) for name in ("title", "push"))
    text = context.texts("connector_preview") if kind == "connector" else form.get(kind, "")
    content = text if kind == "html" else f"<pre>{escape(text)}</pre>"
    return previewed(f"<p><b>{title}</b><br>{push}</p>{content}")


async def _form(
    context: PageContext, values: dict[str, Any], refusal: ApiError | None = None
) -> Response:
    venue, number = await venue_of(context), context.request.path_params.get("uid")
    chosen = {name: [str(each["id"]) for each in values[name]] for name in _TARGETS}
    targets = {name: await _offered(context, name, chosen[name]) for name in _TARGETS}
    return context.form_page(
        "campaign_form.html",
        "campaign",
        values,
        refusal,
        number=number,
        venue=venue,
        targets=targets,
        chosen=chosen,
        state=None if number is None else await campaign_state(context, venue["id"], number),
    )


async def _offered(context: PageContext, name: str, chosen: list[str]) -> list[dict[str, Any]]:
    """The venue's places of a kind, first those that the campaign names already."""
    kind = _TARGETS[name]
    offered: dict[str, dict[str, Any]] = {number: {"id": number} for number in chosen}
    if context.may_read(kind.record):
        found = await context.get(kind.list_path(context), limit=ON_THE_PLAN)
        offered |= {str(each["id"]): each for each in found}
    return list(offered.values())


@router.post(f"{_ONE}/explain")
async def explain(context: Context) -> Response:
    """Show the checks in their order, and the next time at which the campaign would fire."""
    names = ("at", "beacon", "proximity", "udid")
    question = {name: context.form[name] for name in names if context.form.get(name)}
    if "at" in question:
        question["at"] = local_time(question["at"], context.form.get("zone", ""))
    explanation = await context.ask("POST", f"{CAMPAIGNS.one_path(context)}/explain", question)
    return context.page("campaign_form.html#explained", explanation=explanation)


# The fields that name places, with the kinds of record.
_TARGETS = dict(zip(("beacons", "geofencings", "nfcs", "qrcodes"), IN_VENUES, strict=True))
_FLAGS = ("active", "ignores_caps", "ignores_quiet_hours")


def new_campaign(today: date) -> dict[str, Any]:
    """The initial values of the form for a new campaign."""
    return {
        **dict.fromkeys((*WEEKDAYS, "active"), True),
        **{name: [] for name in (*_TARGETS, "tags")},
        "format": "url",
        "cache": "day",
        "on": "detection",
        "priority": 5,
        "start_time": "09:00",
        "end_time": "18:00",
        "start_day": str(today),
        "end_day": str(today + timedelta(days=365)),
    }


def stored_campaign(record: dict[str, Any]) -> dict[str, Any]:
    """The values of the form for a stored campaign."""
    days = {f"{name}_day": record[name][:10] for name in ("start", "end")}
    return record | days | {f"stored_{name}": record[name] for name in ("start", "end")}


def submitted_campaign(form: PostedForm, zone: str) -> dict[str, Any]:
    """The submitted campaign, as the body of a request to the interface.

    If a date was not changed, its stored instant is sent again, with the stored offset. (The
    interface ignores fields of the form that it does not know.)
    """
    dwells = form.get("on") == "dwell"
    return {
        **form,
        **{name: _instant(form, name, zone) for name in ("start", "end")},
        **{name: name in form for name in (*WEEKDAYS, *_FLAGS)},
        "cache": joined_delay(form.get("cache", ""), form.get("cache_unit", "")),
        "dwell_minutes": form.get("dwell_minutes") if dwells else None,
        **{name: [{"id": each} for each in form.getlist(name)] for name in _TARGETS},
        "tags": tag_names(form.get("tags", "")),
    }


def _instant(form: PostedForm, name: str, zone: str) -> str:
    stored, day = form.get(f"stored_{name}", ""), form.get(f"{name}_day", "")
    return stored if day and stored.startswith(f"{day}T") else local_time(day, zone)


_WAITS = ("not_started", "wrong_weekday", "outside_hours")


class StateText(NamedTuple):
    """A sentence about a state, and its style: good, waiting or off."""

    kind: str
    text: str


async def campaign_state(context: PageContext, venue_id: int, number: int) -> StateText:
    """The present state, for a device without claims in the zone that the beacon requires."""
    try:
        found = await context.ask("POST", f"/lieu/{venue_id}/campaign/{number}/explain", {})
    except ApiError as error:
        return StateText("off", error.message)
    reason, next_at = found["reason"], found["next_at"]
    if reason == "granted":
        return StateText("good", context.texts("state_sends"))
    if reason in _WAITS and next_at:
        return StateText("waiting", _opens(found["at"], next_at, context.texts))
    return StateText("off", context.texts.get(f"state_{reason}"))


def _opens(now: str, written: str, texts: Translations) -> str:
    """Opens today at 17:00; opens Friday at 09:00; opens on 2026-12-24 at 09:00."""
    at = datetime.fromisoformat(written)
    days = (at.date() - datetime.fromisoformat(now).date()).days
    clock = f"{at:%H:%M}"
    if days == 0:
        return texts("opens_today", clock=clock)
    if days < 7:
        return texts("opens_weekday", day=texts(WEEKDAYS[at.weekday()]), clock=clock)
    return texts("opens_date", day=str(at.date()), clock=clock)
