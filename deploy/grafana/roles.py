"""The dashboards of the three roles."""

from deploy.grafana.panels import Dashboard, Heading, Panel, Query
from deploy.grafana.shared import lag, quantiles, rate, steps

TRIGGER = Dashboard(
    name="trigger",
    title="Proximity: trigger",
    content=[
        Heading("Does it keep up"),
        *lag("trigger"),
        *steps("trigger"),
        Heading("What it decides"),
        Panel(
            title="Decisions by reason",
            queries=[Query(rate("proximity_decisions_total", "reason"), "{{reason}}")],
            unit="ops",
            width=12,
            stacked=True,
            meaning="One for a detection that reached no campaign, else one a campaign.",
        ),
        Panel(
            title="Claims",
            queries=[Query(rate("proximity_claims_total", "outcome"), "{{outcome}}")],
            unit="ops",
            width=12,
            meaning="held: refused from memory; denied: refused by Redis; granted: sent.",
        ),
        Panel(
            title="From detection to notification",
            queries=quantiles("proximity_detection_to_notification_seconds"),
            unit="s",
        ),
        Panel(
            title="Places found in the process's cache",
            queries=[
                Query(
                    rate("proximity_index_lookups_total", where='layer="process",outcome="hit"')
                    + " / "
                    + rate("proximity_index_lookups_total", where='layer="process"'),
                    "hits",
                )
            ],
            unit="percentunit",
            meaning="The others cost a question to Redis.",
        ),
        Panel(
            title="Visits",
            queries=[Query(rate("proximity_visits_total", "kind, type"), "{{kind}} {{type}}")],
            unit="ops",
            meaning="Entered, dwelt, left; late: detections older than the end of a visit.",
        ),
        Panel(
            title="Calls published for the connector",
            queries=[Query(rate("proximity_connector_handovers_total"), "calls")],
            unit="ops",
        ),
        Panel(title="Records in a batch", queries=quantiles("proximity_batch_size")),
        Panel(
            title="Dead letters",
            queries=[
                Query(rate("proximity_dead_letters_total", "reason", 'reason!~"connector_.*"'), "")
            ],
            unit="ops",
        ),
        Panel(
            title="Records lost to retention in ten minutes",
            queries=[
                Query(
                    'proximity:records_skipped:increase10m{role="trigger",cause!="geofence_exit"}',
                    "{{cause}}",
                ),
            ],
        ),
    ],
)

CONNECTOR = Dashboard(
    name="connector",
    title="Proximity: connector",
    content=[
        Heading("The services of the customers"),
        Panel(
            title="Calls by outcome",
            queries=[Query(rate("proximity_connector_calls_total", "outcome"), "{{outcome}}")],
            unit="ops",
            width=12,
            stacked=True,
            meaning="retried: a try that another one follows.",
        ),
        Panel(
            title="Duration of a try",
            queries=quantiles("proximity_connector_call_seconds"),
            unit="s",
            width=12,
        ),
        Panel(
            title="Companies by their breaker",
            queries=[
                Query(
                    "max by (state) (sum by (instance, state) (proximity_connector_breakers))",
                    "{{state}}",
                )
            ],
            width=12,
            meaning="As the process sees it that has most of them.",
        ),
        Panel(
            title="Dead letters of calls",
            queries=[
                Query(
                    rate("proximity_dead_letters_total", "reason", 'reason=~"connector_.*"'),
                    "{{reason}}",
                )
            ],
            unit="ops",
            width=12,
        ),
        Heading("Does it keep up"),
        *lag("connector"),
        *steps("connector"),
    ],
)

RECORDER = Dashboard(
    name="recorder",
    title="Proximity: recorder",
    content=[
        Heading("Does it keep up"),
        Panel(
            title="Delay of the counters in SQL",
            queries=[Query("proximity:recorder_behind:seconds", "behind")],
            unit="s",
            width=24,
            limit=300,
        ),
        *lag("recorder"),
        *steps("recorder"),
        Heading("What it writes"),
        Panel(
            title="Rows by table",
            queries=[Query(rate("proximity_recorder_rows_total", "table"), "{{table}}")],
            unit="ops",
            width=12,
        ),
        Panel(
            title="Duration of a transaction",
            queries=quantiles("proximity_recorder_transaction_seconds"),
            unit="s",
            width=12,
        ),
        Panel(
            title="Records that are not counted",
            queries=[Query(rate("proximity_recorder_skipped_total", "reason"), "{{reason}}")],
            unit="ops",
            width=12,
        ),
        Panel(
            title="Failed calls to SQL",
            queries=[Query(rate("proximity_sql_errors_total", "instance"), "{{instance}}")],
            unit="ops",
            width=12,
        ),
    ],
)
