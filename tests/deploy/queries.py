"""What PromQL queries may name: the product's series, Prometheus' `up`, and recorded ones."""

import re
from functools import cache
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, Gauge

from api.middleware import ApiMetrics
from engine.process.metrics import Metrics
from engine.process.workers import WORKER_UP
from tests.deploy.files import DEPLOY

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(
    r"\b(?:by|without|on|ignoring|group_left|group_right)\b\s*\(([^)]*)\)", re.IGNORECASE
)
_NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?![\w:]|\s*\()")
_WORDS = frozenset({"and", "or", "unless", "offset", "bool", "inf", "nan"})
_DURATION = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")


def metrics_of(query: str) -> set[str]:
    """The names of metrics and of recorded series."""
    bare = _DURATION.sub(" ", _GROUPING.sub(" ", re.sub(r"\{[^}]*\}", " ", _TEXT.sub('""', query))))
    return {name for name in _NAME.findall(bare) if name.lower() not in _WORDS}


def grouped_labels(query: str) -> set[str]:
    """The labels that by, on and their kind name."""
    named = _GROUPING.findall(_TEXT.sub('""', query))
    return {label.strip() for labels in named for label in labels.split(",") if label.strip()}


RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yaml"))
# What Prometheus itself adds to each series.
_OF_SCRAPING = frozenset({"job", "instance"})


@cache
def known_labels() -> dict[str, frozenset[str]]:
    """The labels of every series, by its name."""
    found = {"up": _OF_SCRAPING, "ALERTS": frozenset({"alertname", "alertstate", "severity"})}
    for family in _registry().collect():
        if family.name.startswith("process_"):
            found |= {sample.name: _OF_SCRAPING for sample in family.samples}
    for name, collector in _collectors().items():
        bucket = {"le"} if name.endswith("_bucket") else set()
        found[name] = _OF_SCRAPING | bucket | set(collector._labelnames)
    found[WORKER_UP] = _OF_SCRAPING | {"worker"}
    for rule in rules("record"):
        found[rule["record"]] = frozenset(_outermost(rule["expr"]))
    return found


@cache
def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Metrics(registry)
    ApiMetrics(registry)
    return registry


def _collectors() -> dict[str, Any]:
    """By the names of series: a counter and a histogram have none of their plain name."""
    named = _registry()._names_to_collectors
    return {
        name: collector
        for name, collector in named.items()
        if isinstance(collector, Gauge) or name.endswith(("_total", "_bucket", "_sum", "_count"))
    }


def _outermost(expression: str) -> set[str]:
    """The labels that are left by the aggregation that a recorded expression begins with."""
    grouped = re.match(r"\s*sum by \([^)]*\)", expression)
    return grouped_labels(grouped[0]) if grouped else set()


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules of deploy/prometheus/rules that are of this kind: `alert` or `record`."""
    read = [yaml.safe_load(path.read_text()) for path in RULES]
    groups = [group for file in read for group in file["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def faults_of(query: str) -> list[str]:
    """A line for each metric that does not exist, and each label that none of them has."""
    names, known = metrics_of(query), known_labels()
    of_all = set[str]().union(*(known.get(name, ()) for name in names))
    used = grouped_labels(query) | set(_MATCHER.findall(query))
    return [
        *(f"no metric {name}" for name in names - known.keys()),
        *(f"no metric of the query has the label {label}" for label in used - of_all),
    ]
