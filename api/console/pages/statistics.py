"""Statistics by record and by day, as a table, a plot and a CSV file."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.console.context import PageContext
from api.console.pages.plots import daily_plot

_KINDS = ("campaign", "beacon", "venue")
_MOST = 100
_VENUES = 500


async def show(context: PageContext) -> Response:
    """Show the chosen figures. Faults are shown beside the fields."""
    chosen = _chosen(context)
    interface = context.interface
    query = {"from": chosen["from"], "to": chosen["to"], "venue": chosen["venue"]}
    kind = chosen["kind"]
    records = await interface.call(
        "GET", "/statistics/totals", query=query | {"kind": kind, "limit": _MOST}
    )
    by_day = await interface.call("GET", "/statistics/days", query=query)
    venues = await interface.get("/region", limit=_VENUES) if context.may_read("venue") else []
    days = by_day.body if by_day.is_success else []
    plot = daily_plot(days, ("detections", "visits", "notifications"), context.texts)
    return context.page(
        "statistics.html",
        200 if records.is_success else records.status,
        chosen=chosen,
        faults=records.fields,
        message=records.message,
        found=records.body if records.is_success else [],
        most=_MOST,
        venues=venues,
        plot=plot,
    )


async def csv_file(context: PageContext) -> Response:
    """The CSV of the operation, streamed to the browser."""
    return _CsvResponse(context)


def _chosen(context: PageContext) -> dict[str, str]:
    kind = context.query("kind")
    return {
        "from": context.query("from"),
        "to": context.query("to"),
        "venue": context.query("venue"),
        "kind": kind if kind in _KINDS else _KINDS[0],
    }


class _CsvResponse(Response):
    """Streams the answer of the operation to the browser, without buffering it."""

    def __init__(self, context: PageContext) -> None:
        super().__init__()
        self._visit = context

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self._visit.interface.stream_file(
            send,
            "/statistics",
            _chosen(self._visit),
            accept="text/csv",
            name="statistics.csv",
        )


PAGES = (("GET", "/statistics", show), ("GET", "/statistics.csv", csv_file))
