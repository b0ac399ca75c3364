"""What a process has done, from its own metrics, for its last line of log."""

from collections import Counter

from prometheus_client import CollectorRegistry

_TOLD = {
    "proximity_detections_total": "detections",
    "proximity_notifications_total": "notifications",
    "proximity_connector_calls_total": "connector_calls",
    "proximity_recorder_rows_total": "rows",
    "proximity_dead_letters_total": "dead_letters",
}


def finished_work(registry: CollectorRegistry) -> dict[str, int]:
    """Counts by what was counted; what was none is left out."""
    counts: Counter[str] = Counter()
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in _TOLD:
                counts[_TOLD[sample.name]] += round(sample.value)
    return {name: counts[name] for name in _TOLD.values() if counts[name]}
