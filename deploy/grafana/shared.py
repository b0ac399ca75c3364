"""Queries and panels that several dashboards show."""

from deploy.grafana.panels import Panel, Query

INTERVAL = "$__rate_interval"


def rate(metric: str, by: str = "", where: str = "") -> str:
    """The sum of events a second; `by` names the labels that are kept, `where` the matchers."""
    kept = f" by ({by})" if by else ""
    return f"sum{kept} (rate({metric}{_braces(where)}[{INTERVAL}]))"


def quantile(q: float, histogram: str, by: str = "", where: str = "") -> str:
    """A quantile of a histogram, whose name is given without `_bucket`."""
    kept = f"le, {by}" if by else "le"
    buckets = f"rate({histogram}_bucket{_braces(where)}[{INTERVAL}])"
    return f"histogram_quantile({q}, sum by ({kept}) ({buckets}))"


def quantiles(histogram: str, where: str = "") -> list[Query]:
    """The quantiles p50, p95 and p99."""
    return [
        Query(quantile(q, histogram, where=where), f"p{q * 100:.0f}") for q in (0.5, 0.95, 0.99)
    ]


def steps(role: str) -> list[Panel]:
    """Panels with the time of a role's batches by step."""
    where = f'role="{role}"'
    return [
        Panel(
            title="Time in each step",
            queries=[Query(rate("proximity_batch_seconds_sum", "step", where), "{{step}}")],
            unit="percentunit",
            width=12,
            stacked=True,
            meaning="Seconds a second, of all processes and partitions together. What grows with "
            "the lag is what to look at.",
        ),
        Panel(
            title="Longest steps (p99 of a batch)",
            queries=[Query(quantile(0.99, "proximity_batch_seconds", "step", where), "{{step}}")],
            unit="s",
            width=12,
        ),
    ]


def lag(role: str) -> list[Panel]:
    """Panels with the lag of a role."""
    where = f'role="{role}"'
    by_partition = f"max by (topic, partition) (proximity_consumer_lag_records{{{where}}})"
    return [
        Panel(
            title="Lag",
            queries=[Query(f"proximity:consumer_lag_records:sum{{{where}}}", "{{topic}}")],
            width=12,
            meaning="Records behind the end of the topic.",
        ),
        Panel(
            title="Lag by partition, the ten longest",
            queries=[Query(f"topk(10, {by_partition})", "{{topic}}/{{partition}}")],
            width=12,
            meaning="One partition alone: one device, or one process, is behind.",
        ),
    ]


def _braces(where: str) -> str:
    return f"{{{where}}}" if where else ""
