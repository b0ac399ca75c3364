"""What PromQL queries may name: the product's series, Prometheus' `up`, and recorded ones."""

import re
from functools import cache
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from api.middleware import ApiMetrics
from engine.process.metrics import Metrics
from engine.process.workers import WORKER_UP
from tests.deploy.files import DEPLOY

RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yaml"))
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*""')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SERIES = re.compile(r"\b(\w+(?:_|:)[\w:]+|up|ALERTS)\b(?!\s*\()")


def metrics_of(query: str) -> set[str]:
    """The names of metrics and of recorded series."""
    return set(_SERIES.findall(_GROUPING.sub("", re.sub(r"\{[^}]*\}|\[[^]]*\]", "", query))))


def grouped_labels(query: str) -> set[str]:
    """The labels that by, on and their kind name."""
    return {label for labels in _GROUPING.findall(query) for label in re.findall(r"\w+", labels)}


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules of deploy/prometheus/rules that are of this kind: `alert` or `record`."""
    read = [yaml.safe_load(path.read_text()) for path in RULES]
    groups = [group for file in read for group in file["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


@cache
def known_labels() -> dict[str, set[str]]:
    """The labels of every series, by its name."""
    registry = CollectorRegistry()
    Metrics(registry)
    ApiMetrics(registry)
    alerts = {"alertname", "alertstate", "severity"}
    found = {"up": set[str](), "ALERTS": alerts, WORKER_UP: {"worker"}}
    found |= {sample.name: set() for each in registry.collect() for sample in each.samples}
    for name, collector in registry._names_to_collectors.items():
        own = set(getattr(collector, "_labelnames", ()))
        found[name] = own | ({"le"} if name.endswith("_bucket") else set())
    for rule in rules("record"):
        first = re.match(r"\s*sum by \([^)]*\)", rule["expr"])
        found[rule["record"]] = grouped_labels(first[0]) if first else set()
    # What Prometheus itself adds to each series.
    return {name: labels | {"job", "instance"} for name, labels in found.items()}


def faults_of(query: str) -> list[str]:
    """A line for each metric that does not exist, and each label that none of them has."""
    names, known = metrics_of(query), known_labels()
    of_all = set[str]().union(*(known.get(name, ()) for name in names))
    used = grouped_labels(query) | set(_MATCHER.findall(_TEXT.sub('""', query)))
    return [
        *(f"no metric {name}" for name in names - known.keys()),
        *(f"no metric of the query has the label {label}" for label in used - of_all),
    ]
