"""The dashboard to open first: it shows whether all is well, and if not, where to look."""

from deploy.grafana.panels import Dashboard, Heading, Panel, Query
from deploy.grafana.shared import quantiles, rate

_LATENCY = "proximity_detection_to_notification_seconds"
_FIRING = 'ALERTS{alertname=~"Proximity.*",alertstate="firing"}'

OVERVIEW = Dashboard(
    name="overview",
    title="Proximity: overview",
    content=[
        Panel(
            title="Processes",
            kind="stat",
            width=4,
            queries=[Query('sum(up{job="proximity"})')],
        ),
        Panel(
            title="Detections a second",
            kind="stat",
            width=4,
            queries=[Query("sum(proximity:detections:rate5m)")],
        ),
        Panel(
            title="Notifications a second",
            kind="stat",
            width=4,
            queries=[Query("sum(proximity:notifications:rate5m)")],
        ),
        Panel(
            title="Late notifications, last hour",
            kind="stat",
            width=4,
            unit="percentunit",
            limit=0.01,
            queries=[Query("proximity:notifications_slow:ratio1h")],
            meaning="Left more than 5 s after their detection. One percent may, over 30 days.",
        ),
        Panel(
            title="Lag of all roles",
            kind="stat",
            width=4,
            limit=10_000,
            queries=[Query("sum(proximity:consumer_lag_records:sum)")],
        ),
        Panel(
            title="Alerts",
            kind="stat",
            width=4,
            limit=1,
            queries=[Query(f"count({_FIRING}) or vector(0)")],
            meaning="docs/runbook.md has an entry for each.",
        ),
        Heading("What goes through"),
        Panel(
            title="Detections by outcome",
            queries=[Query("proximity:detections:rate5m", "{{reason}}")],
            unit="ops",
            stacked=True,
            meaning="By the furthest check that they reached; granted led to a notification.",
        ),
        Panel(
            title="Notifications by format",
            queries=[Query("proximity:notifications:rate5m", "{{format}}")],
            unit="ops",
            stacked=True,
        ),
        Panel(title="From detection to notification", queries=quantiles(_LATENCY), unit="s"),
        Panel(
            title="Lag",
            queries=[Query("proximity:consumer_lag_records:sum", "{{role}} {{topic}}")],
        ),
        Panel(
            title="Dead letters in ten minutes",
            queries=[Query("proximity:dead_letters:increase10m", "{{topic}} {{reason}}")],
        ),
        Panel(
            title="Firing alerts",
            queries=[Query(f"count by (alertname, severity) ({_FIRING})", "{{alertname}}")],
            stacked=True,
        ),
        Heading("What it stands on"),
        Panel(
            title="Failed requests to servers",
            queries=[
                Query(rate("proximity_kafka_errors_total"), "Kafka"),
                Query(rate("proximity_redis_errors_total"), "Redis"),
                Query(rate("proximity_sql_errors_total"), "SQL"),
            ],
            unit="ops",
        ),
        Panel(
            title="Memory of Redis",
            queries=[Query("max(proximity_redis_memory_ratio)", "used")],
            unit="percentunit",
            limit=0.85,
        ),
        Panel(
            title="Index lag and clock skew",
            queries=[
                Query("max(proximity_index_generation_lag)", "writes that the index lacks"),
                Query("max by (server) (abs(proximity_clock_skew_seconds))", "s from {{server}}"),
            ],
        ),
        Panel(
            title="Processor by process",
            queries=[Query('rate(process_cpu_seconds_total{job="proximity"}[5m])', "{{instance}}")],
            unit="percentunit",
            limit=1,
            meaning="A process uses one core at most.",
        ),
        Panel(
            title="Memory by process",
            queries=[Query('process_resident_memory_bytes{job="proximity"}', "{{instance}}")],
            unit="bytes",
        ),
        Panel(
            title="Versions",
            queries=[Query("count by (version) (proximity_build_info)", "{{version}}")],
            stacked=True,
        ),
    ],
)
