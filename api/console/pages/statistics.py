"""Figures by record and by day, as a table, a plot and a sheet."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.console.pages.plots import plot_of
from api.console.visit import Visit

_KINDS = ("campaign", "beacon", "venue")
_MOST = 100
_VENUES = 500


async def show(visit: Visit) -> Response:
    """What was asked for; what the interface does not accept is said at the fields."""
    chosen = _chosen(visit)
    interface = visit.interface
    asked = {"from": chosen["from"], "to": chosen["to"], "venue": chosen["venue"]}
    kind = chosen["kind"]
    records = await interface.call(
        "GET", "/statistics/totals", query=asked | {"kind": kind, "limit": _MOST}
    )
    by_day = await interface.call("GET", "/statistics/days", query=asked)
    venues = await interface.read("/region", limit=_VENUES) if visit.may_read("venue") else []
    days = by_day.body if by_day.is_good else []
    plot = plot_of(days, ("detections", "visits", "notifications"), visit.words)
    return visit.page(
        "statistics.html",
        200 if records.is_good else records.status,
        chosen=chosen,
        faults=records.fields,
        message=records.message,
        found=records.body if records.is_good else [],
        most=_MOST,
        venues=venues,
        plot=plot,
    )


async def sheet(visit: Visit) -> Response:
    """The operation's own CSV, passed on as it comes."""
    return _SheetResponse(visit)


def _chosen(visit: Visit) -> dict[str, str]:
    kind = visit.query("kind")
    return {
        "from": visit.query("from"),
        "to": visit.query("to"),
        "venue": visit.query("venue"),
        "kind": kind if kind in _KINDS else _KINDS[0],
    }


class _SheetResponse(Response):
    """Bytes go from the operation to the browser without being gathered here."""

    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self._visit = visit

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self._visit.interface.pass_on(
            send,
            "/statistics",
            _chosen(self._visit),
            accept="text/csv",
            name="statistics.csv",
        )


PAGES = (("GET", "/statistics", show), ("GET", "/statistics.csv", sheet))
