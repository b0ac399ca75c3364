"""The first page: the last 30 days, and what does not send now. Its parts come one by one."""

from typing import Any

from starlette.responses import Response

from api.console.pages.campaign_state import state_of
from api.console.pages.plots import last_days, plot_of
from api.console.visit import Visit
from api.permissions import services_of

_DAYS = 30
_FIGURES = ("detections", "visits", "notifications")
_LARGEST = 8
_CAMPAIGNS_ASKED = 20
_VENUES_ASKED = 20


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
    ("GET", "/parts/largest/{kind}", largest),
    ("GET", "/parts/silent", silent),
)
