"""The overview: states of the roles, figures of the last 30 days and hours, silent campaigns.

The parts of the page are loaded one by one.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from api.answers import timestamp
from api.console.context import PageContext
from api.console.interface import message_of
from api.console.pages.campaigns import StateText, campaign_state
from api.console.pages.statistics import (
    before,
    figures_of,
    first_hour,
    hourly_figures,
    last_days,
)
from api.console.texts import Translations, display_zone

_DAYS = 30
_LARGEST = 8
_CAMPAIGNS_AT_ONCE = 20
_CAMPAIGNS_OF_REASON = 3


async def show(context: PageContext) -> Response:
    """Show the page without its parts."""
    return context.page("overview.html", days=_DAYS)


async def figures(context: PageContext) -> Response:
    """Show the figures of the last 30 days beside those of the 30 days before."""
    span = last_days((await context.local_now()).date(), _DAYS)
    found, past = [await context.get("/statistics/days", **each) for each in (span, before(span))]
    return context.page("overview.html#figures", figures=figures_of(found, span, past), days=_DAYS)


async def hours(context: PageContext) -> Response:
    """Show yesterday and today by hour, in the venues' local time if they all have the same."""
    now = await context.local_now()
    found = await context.get("/statistics/hours", **_utc_days(first_hour(now), now))
    return context.page(
        "overview.html#hours", figures=hourly_figures(found, now), zone=display_zone(timestamp(now))
    )


async def reasons(context: PageContext) -> Response:
    """Show refusals of today and of the last 30 days by reason, each with a few campaigns."""
    now, path = context.now, "/statistics/reasons"
    span = _utc_days(now - timedelta(days=_DAYS - 1), now)
    found = await context.get(path, limit=_CAMPAIGNS_OF_REASON, **span)
    today = await context.get(path, limit=0, **_utc_days(now, now))
    return context.page(
        "overview.html#reasons",
        found=[each for each in found if each["reason"] != "granted"],
        today={each["reason"]: each["count"] for each in today},
        days=_DAYS,
    )


def _utc_days(first: datetime, last: datetime) -> dict[str, str]:
    return {
        "from": str(first.astimezone(UTC).date()),
        "to": str(last.astimezone(UTC).date()),
    }


async def largest(context: PageContext) -> Response:
    """Show the largest campaigns by notifications, or beacons by their devices."""
    kind = "campaign" if context.request.path_params["kind"] == "campaigns" else "beacon"
    span = last_days((await context.local_now()).date(), _DAYS)
    found = await context.get("/statistics/totals", kind=kind, limit=_LARGEST, **span)
    return context.page("overview.html#largest", found=found, kind=kind)


async def silent(context: PageContext) -> Response:
    """Show campaigns that do not send now, each with the reason; the next ones load by themselves.

    `venue` and `after` say where to go on; `seen` and `silent` count the campaigns before.
    """
    found: list[dict[str, Any]] = []
    start, after = context.query_number("venue"), context.query_number("after")
    seen, remaining, further = context.query_number("seen"), _CAMPAIGNS_AT_ONCE, ""
    for venue in await context.get("/region", after=max(0, start - 1)):
        begin = after if venue["id"] == start else 0
        path = f"/lieu/{venue['id']}/campaign"
        for campaign in await context.get(path, limit=remaining, after=begin):
            remaining -= 1
            further = f"venue={venue['id']}&after={campaign['id']}"
            state = await campaign_state(context, venue["id"], campaign["id"])
            if state.kind != "good":
                found.append({"venue": venue, "campaign": campaign, "state": state})
        if not remaining:
            break
    seen += _CAMPAIGNS_AT_ONCE - remaining
    count = context.query_number("silent") + len(found)
    next_ = "" if remaining else f"{further}&seen={seen}&silent={count}"
    return context.page("overview.html#silent", found=found, seen=seen, count=count, next=next_)


_KINDS = {"up_to_date": "good", "behind": "waiting", "starting": "waiting"}
_BREAKERS = {"closed": "good", "half_open": "waiting"}
_MINUTES_FROM, _HOURS_FROM = 120, 7200


async def roles(context: PageContext) -> Response:
    """Show a sentence for each role, and one for the company's service if it has one."""
    found = await context.get("/realtime/roles")
    sentences = [role_sentence(each, context.texts) for each in found]
    if context.may_read("connector"):
        sentences += await _of_service(context)
    return context.page("overview.html#roles", sentences=sentences)


async def _of_service(context: PageContext) -> list[StateText]:
    if not (await context.call("GET", "/connector")).is_success:
        return []
    reply = await context.call("GET", "/connector/calls")
    if not reply.is_success:
        return [StateText("off", message_of(reply))]
    breaker = reply.json()["breaker"]
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
