"""The overview: states of the roles, figures of the last 30 days, silent campaigns.

The parts of the page are loaded one by one.
"""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from api.console.context import Context
from api.console.pages.campaigns import StateText, campaign_state
from api.console.pages.statistics import before, figures_of, last_days
from api.console.texts import Translations

router = APIRouter()
_DAYS = 30
_AT_ONCE = 20  # campaigns and venues
_CAMPAIGNS_OF_REASON = 3


@router.get("")
@router.get("/")
async def show(context: Context) -> Response:
    """Show the page without its parts."""
    return context.page("overview.html", days=_DAYS)


@router.get("/parts/figures")
async def figures(context: Context) -> Response:
    """Show the figures of the last 30 days beside those of the 30 days before."""
    span = last_days((await context.local_now()).date(), _DAYS)
    found, past = [await context.get("/statistics/days", **each) for each in (span, before(span))]
    return context.page("overview.html#figures", figures=figures_of(found, span, past), days=_DAYS)


@router.get("/parts/reasons")
async def reasons(context: Context) -> Response:
    """Show refusals of today and of the last 30 days by reason, each with a few campaigns."""
    today, path = context.now.date(), "/statistics/reasons"
    found = await context.get(path, limit=_CAMPAIGNS_OF_REASON, **last_days(today, _DAYS))
    of_today = await context.get(path, limit=0, **last_days(today, 1))
    return context.page(
        "overview.html#reasons",
        found=[each for each in found if each["reason"] != "granted"],
        today={each["reason"]: each["count"] for each in of_today},
        days=_DAYS,
    )


@router.get("/parts/silent")
async def silent(context: Context) -> Response:
    """Show campaigns that do not send now, each with the reason; the next ones load by themselves.

    `venue` and `after` say where to go on; `seen` and `silent` count the campaigns before.
    """
    found: list[dict[str, Any]] = []
    start, after = context.query_number("venue"), context.query_number("after")
    venues = await context.get("/region", after=max(0, start - 1), limit=_AT_ONCE)
    remaining, further = _AT_ONCE, ""
    if len(venues) == _AT_ONCE:
        further = f"venue={venues[-1]['id'] + 1}"
    for venue in venues:
        path, begin = f"/lieu/{venue['id']}/campaign", after if venue["id"] == start else 0
        listed = await context.get(path, limit=remaining, after=begin)
        for campaign in listed:
            state = await campaign_state(context, venue["id"], campaign["id"])
            if state.kind != "good":
                found.append({"venue": venue, "campaign": campaign, "state": state})
        remaining -= len(listed)
        if not remaining:
            further = f"venue={venue['id']}&after={listed[-1]['id']}"
            break
    seen = context.query_number("seen") + _AT_ONCE - remaining
    count = context.query_number("silent") + len(found)
    next_ = further and f"{further}&seen={seen}&silent={count}"
    return context.page("overview.html#silent", found=found, seen=seen, count=count, next=next_)


_KINDS = {"up_to_date": "good", "behind": "waiting", "starting": "waiting"}
_MINUTES_FROM = 120


@router.get("/parts/roles")
async def roles(context: Context) -> Response:
    """Show a sentence for each role."""
    found = await context.get("/realtime/roles")
    sentences = [role_sentence(each, context.texts) for each in found]
    return context.page("overview.html#roles", sentences=sentences)


def role_sentence(found: dict[str, Any], texts: Translations) -> StateText:
    """A sentence such as "The recorder is 12 s behind"."""
    state, seconds = found["state"], found["seconds"] or 0
    # In units that all four languages abbreviate alike.
    time = f"{seconds} s" if seconds < _MINUTES_FROM else f"{seconds // 60} min"
    kind = _KINDS.get(state, "off")
    if state == "silent":
        key = "never" if found["seconds"] is None else "silent"
        return StateText(kind, texts(f"{key}_{found['role']}", time=time))
    servers = ", ".join(texts.get(f"waits_{name}") for name in found["waits_for"])
    values = {"role": texts(f"role_{found['role']}"), "servers": servers, "time": time}
    return StateText(kind, texts(f"role_{state}", **values))
