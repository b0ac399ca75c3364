"""The first page: the last 30 days and hours, what does not send now, and what did not fire. Its
parts come one by one."""

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from api.console.moments import in_zone, shown_zone, written_moment
from api.console.pages.campaign_state import state_of
from api.console.pages.plots import first_hour, last_days, plot_of, plot_of_hours
from api.console.visit import Visit
from api.permissions import services_of

_DAYS = 30
_FIGURES = ("detections", "visits", "notifications")
_LARGEST = 8
_CAMPAIGNS_ASKED = 20
_VENUES_ASKED = 20
_CAMPAIGNS_OF_REASON = 3


async def show(visit: Visit) -> Response:
    """The frame of the page, at once."""
    return visit.page("overview.html", days=_DAYS)


async def figures(visit: Visit) -> Response:
    """Today, the last 30 days, and their plot."""
    found = await visit.interface.read("/statistics/days", **last_days(visit, _DAYS))
    last = found[-1] if found and found[-1]["day"] >= _today(visit) else None
    total = {name: sum(each[name] for each in found) for name in _FIGURES}
    plot = plot_of(found, _FIGURES, visit.words)
    return visit.page("part_figures.html", today=last, total=total, plot=plot, days=_DAYS)


async def hours(visit: Visit) -> Response:
    """Yesterday and today by hour, by the clocks of the venues where these agree."""
    now = await _here(visit)
    begin = first_hour(now)
    found = await visit.interface.read("/statistics/hours", **_utc_days(begin, now))
    plot = plot_of_hours(found, ("detections", "notifications"), visit.words, now)
    return visit.page("part_hours.html", plot=plot, zone=shown_zone(written_moment(now)))


async def reasons(visit: Visit) -> Response:
    """What did not fire today and in the last 30 days, by reason, each with a few campaigns."""
    now = services_of(visit.request).clock()
    first = now - timedelta(days=_DAYS - 1)
    asked = "/statistics/reasons"
    found = await visit.interface.read(asked, limit=_CAMPAIGNS_OF_REASON, **_utc_days(first, now))
    today = await visit.interface.read(asked, limit=0, **_utc_days(now, now))
    return visit.page(
        "part_reasons.html",
        found=[each for each in found if each["reason"] != "granted"],
        today={each["reason"]: each["count"] for each in today},
        days=_DAYS,
    )


async def _here(visit: Visit) -> datetime:
    """Now, by the clocks of the venues if all have the same."""
    venues = []
    if visit.may_read("venue"):
        venues = await visit.interface.read("/region", limit=_VENUES_ASKED)
    zones = {venue.get("time_zone") or "UTC" for venue in venues}
    return in_zone(services_of(visit.request).clock(), zones.pop() if len(zones) == 1 else "UTC")


def _utc_days(first: datetime, last: datetime) -> dict[str, str]:
    return {
        "from": str(first.astimezone(UTC).date()),
        "to": str(last.astimezone(UTC).date()),
    }


async def largest(visit: Visit) -> Response:
    """Campaigns by notifications, or beacons by visits."""
    kind = "campaign" if visit.request.path_params["kind"] == "campaigns" else "beacon"
    found = await visit.interface.read(
        "/statistics/totals", kind=kind, limit=_LARGEST, **last_days(visit, _DAYS)
    )
    return visit.page("part_largest.html", found=found, kind=kind)


async def silent(visit: Visit) -> Response:
    """Campaigns that do not send now, each with what stands in the way."""
    found: list[dict[str, Any]] = []
    asked = 0
    for venue in await visit.interface.read("/region", limit=_VENUES_ASKED):
        left = _CAMPAIGNS_ASKED - asked
        if left <= 0:
            break
        where = f"/lieu/{venue['id']}/campaign"
        for campaign in await visit.interface.read(where, limit=left):
            asked += 1
            state = await state_of(visit, venue["id"], campaign["id"])
            if not state.sends:
                found.append({"venue": venue, "campaign": campaign, "state": state})
    return visit.page("part_silent.html", found=found, asked=asked, most=_CAMPAIGNS_ASKED)


def _today(visit: Visit) -> str:
    return str(services_of(visit.request).clock().date())


PAGES = (
    ("GET", "", show),
    ("GET", "/parts/figures", figures),
    ("GET", "/parts/hours", hours),
    ("GET", "/parts/reasons", reasons),
    ("GET", "/parts/largest/{kind}", largest),
    ("GET", "/parts/silent", silent),
)
