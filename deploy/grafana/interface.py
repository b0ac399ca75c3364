"""The dashboard of the management interface."""

from deploy.grafana.panels import Dashboard, Panel, Query
from deploy.grafana.shared import quantile, quantiles, rate

_REQUESTS = "proximity_api_requests_total"
_SECONDS = "proximity_api_request_seconds"
_OWN_ERRORS = 'status=~"5.."'
# Without `or` the panel has no line until the first error.
_ERROR_SHARE = f"({rate(_REQUESTS, where=_OWN_ERRORS)} or vector(0)) / {rate(_REQUESTS)}"

INTERFACE = Dashboard(
    name="interface",
    title="Proximity: interface",
    content=[
        Panel(
            title="Requests by status",
            queries=[Query(rate(_REQUESTS, "status"), "{{status}}")],
            unit="reqps",
            width=12,
            stacked=True,
        ),
        Panel(
            title="Server errors (500 to 599)",
            queries=[Query(_ERROR_SHARE, "errors")],
            unit="percentunit",
            width=12,
            limit=0.05,
        ),
        Panel(title="Duration of a request", queries=quantiles(_SECONDS), unit="s", width=12),
        Panel(
            title="Slowest routes (p95), ten of them",
            queries=[
                Query(
                    f"topk(10, {quantile(0.95, _SECONDS, 'method, route')})", "{{method}} {{route}}"
                )
            ],
            unit="s",
            width=12,
            meaning="Lists and exports are slow by their length.",
        ),
        Panel(
            title="Busiest routes, ten of them",
            queries=[
                Query(f"topk(10, {rate(_REQUESTS, 'method, route')})", "{{method}} {{route}}")
            ],
            unit="reqps",
            width=12,
        ),
        Panel(
            title="Requests in flight",
            queries=[Query("sum by (instance) (proximity_api_requests_in_flight)", "{{instance}}")],
            width=12,
        ),
    ],
)
