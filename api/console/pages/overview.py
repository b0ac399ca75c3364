"""The overview: states of the roles, figures of the last 30 days and hours, silent campaigns.

The parts of the page are loaded one by one.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from api.console.context import PageContext
from api.console.pages.campaigns import StateText, campaign_state
from api.console.pages.statistics import daily_plot, first_hour, hourly_plot, last_days
from api.console.texts import Translations, display_zone, format_time, in_zone

_DAYS = 30
_FIGURES = ("detections", "device_days", "notifications")
_LARGEST = 8
_CAMPAIGNS_AT_ONCE = 20
_MOST_VENUES = 20
_VENUES = 500
_CAMPAIGNS_OF_REASON = 3


async def show(context: PageContext) -> Response:
    """Show the page without its parts."""
    return context.page("overview.html", days=_DAYS)


async def figures(context: PageContext) -> Response:
    """Show the figures of today and of the last 30 days, with a plot."""
    found = await context.interface.get("/statistics/days", **last_days(context, _DAYS))
    last = found[-1] if found and found[-1]["day"] >= str(context.now.date()) else None
    total = {name: sum(each[name] for each in found) for name in _FIGURES}
    plot = daily_plot(found, _FIGURES, context.texts)
    return context.page("overview.html#figures", today=last, total=total, plot=plot, days=_DAYS)


async def hours(context: PageContext) -> Response:
    """Show yesterday and today by hour, in the venues' local time if they all have the same."""
    now = await _local_now(context)
    begin = first_hour(now)
    found = await context.interface.get("/statistics/hours", **_utc_days(begin, now))
    plot = hourly_plot(found, ("detections", "notifications"), context.texts, now)
    return context.page("overview.html#hours", plot=plot, zone=display_zone(format_time(now)))


async def reasons(context: PageContext) -> Response:
    """Show refusals of today and of the last 30 days by reason, each with a few campaigns."""
    now = context.now
    first = now - timedelta(days=_DAYS - 1)
    path = "/statistics/reasons"
    found = await context.interface.get(path, limit=_CAMPAIGNS_OF_REASON, **_utc_days(first, now))
    today = await context.interface.get(path, limit=0, **_utc_days(now, now))
    return context.page(
        "overview.html#reasons",
        found=[each for each in found if each["reason"] != "granted"],
        today={each["reason"]: each["count"] for each in today},
        days=_DAYS,
    )


async def _local_now(context: PageContext) -> datetime:
    """The present time: the venues' local time if they all have the same, else UTC."""
    venues = []
    if context.may_read("venue"):
        venues = await context.interface.get("/region", limit=_MOST_VENUES)
    zones = {venue.get("time_zone") or "UTC" for venue in venues}
    return in_zone(context.now, zones.pop() if len(zones) == 1 else "UTC")


def _utc_days(first: datetime, last: datetime) -> dict[str, str]:
    return {
        "from": str(first.astimezone(UTC).date()),
        "to": str(last.astimezone(UTC).date()),
    }


async def largest(context: PageContext) -> Response:
    """Show the largest campaigns by notifications, or beacons by their devices."""
    kind = "campaign" if context.request.path_params["kind"] == "campaigns" else "beacon"
    found = await context.interface.get(
        "/statistics/totals", kind=kind, limit=_LARGEST, **last_days(context, _DAYS)
    )
    return context.page("overview.html#largest", found=found, kind=kind)


async def silent(context: PageContext) -> Response:
    """Show campaigns that do not send now, each with the reason; the next ones load by themselves.

    `venue` and `after` say where to go on, `found` how many there were before.
    """
    found: list[dict[str, Any]] = []
    start, after = context.query_number("venue"), context.query_number("after")
    remaining, further = _CAMPAIGNS_AT_ONCE, ""
    for venue in await context.interface.get("/region", after=max(0, start - 1), limit=_VENUES):
        begin = after if venue["id"] == start else 0
        path = f"/lieu/{venue['id']}/campaign"
        for campaign in await context.interface.get(path, limit=remaining, after=begin):
            remaining -= 1
            further = f"venue={venue['id']}&after={campaign['id']}"
            state = await campaign_state(context, venue["id"], campaign["id"])
            if state.kind != "good":
                found.append({"venue": venue, "campaign": campaign, "state": state})
        if not remaining:
            break
    before = context.query_number("found") + len(found)
    next_ = f"{further}&found={before}" if not remaining else ""
    return context.page(
        "overview.html#silent",
        found=found,
        before=before,
        next=next_,
        any=bool(further or start),
    )


_KINDS = {"up_to_date": "good", "behind": "waiting", "starting": "waiting"}
_BREAKERS = {"closed": "good", "half_open": "waiting"}
_MINUTES_FROM, _HOURS_FROM = 120, 7200


async def roles(context: PageContext) -> Response:
    """Show a sentence for each role, and one for the company's service if it has one."""
    found = await context.interface.get("/realtime/roles")
    sentences = [role_sentence(each, context.texts) for each in found]
    if context.may_read("connector"):
        sentences += await _of_service(context)
    return context.page("overview.html#roles", sentences=sentences)


async def _of_service(context: PageContext) -> list[StateText]:
    if not (await context.interface.call("GET", "/connector")).is_success:
        return []
    reply = await context.interface.call("GET", "/connector/calls")
    if not reply.is_success:
        return [StateText("off", reply.message)]
    breaker = reply.body["breaker"]
    if breaker["state"] == "closed" and not breaker["calls"]:
        return []
    text = context.texts(f"service_{breaker['state']}", seconds=round(breaker["seconds"]))
    return [StateText(_BREAKERS.get(breaker["state"], "off"), text)]


def role_sentence(found: dict[str, Any], texts: Translations) -> StateText:
    """A sentence such as "The recorder is 12 s behind"."""
    state, seconds = found["state"], found["seconds"]
    kind = _KINDS.get(state, "off")
    if state == "silent":
        key = f"{'never' if seconds is None else 'silent'}_{found['role']}"
        return StateText(kind, texts(key, time=_time(seconds or 0)))
    servers = ", ".join(texts.get(f"waits_{name}") for name in found["waits_for"])
    values = {"role": texts(f"role_{found['role']}"), "servers": servers}
    return StateText(kind, texts(f"role_{state}", time=_time(seconds or 0), **values))


def _time(seconds: int) -> str:
    """The time in units that all four languages abbreviate alike."""
    if seconds < _MINUTES_FROM:
        return f"{seconds} s"
    if seconds < _HOURS_FROM:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"


PAGES = (
    ("GET", "", show),
    ("GET", "/parts/roles", roles),
    ("GET", "/parts/figures", figures),
    ("GET", "/parts/hours", hours),
    ("GET", "/parts/reasons", reasons),
    ("GET", "/parts/largest/{kind}", largest),
    ("GET", "/parts/silent", silent),
)
