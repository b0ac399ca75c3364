"""Every series that a query may name: the product's own, Prometheus' `up`, and recorded ones."""

import re
from enum import StrEnum
from functools import cache
from typing import Any, get_args

import yaml
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.utils import floatToGoString

from api.metrics import ApiMetrics
from connectors.model import CallFault
from engine.cli.run import RoleChoice
from engine.kafka.dead_letters import DeadLetterReason
from engine.process.metrics import Metrics
from engine.process.workers_page import WORKER_UP
from rules.model import ContentFormat, Reason
from tests.unit.deploy.compose import DEPLOY, ROOT
from tests.unit.deploy.promql import grouped_labels

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


def buckets_of(name: str) -> set[str]:
    """The values of `le` of a histogram's `_bucket`."""
    collector: Any = _collectors()[name]
    return {floatToGoString(bound) for bound in collector._upper_bounds}


def _outermost(expression: str) -> set[str]:
    """The labels that are left by the aggregation that a recorded expression begins with."""
    grouped = re.match(r"\s*sum by \([^)]*\)", expression)
    return grouped_labels(grouped[0]) if grouped else set()


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules of deploy/prometheus/rules that are of this kind: `alert` or `record`."""
    read = [yaml.safe_load(path.read_text()) for path in RULES]
    groups = [group for file in read for group in file["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


@cache
def known_values() -> dict[str, frozenset[str]]:
    """The values of the labels whose values are a closed list, by the label's name. Where two
    metrics have a label of one name it is the values of both."""
    reasons = {*Reason, *DeadLetterReason}
    outcomes = {*CallFault, "published", "declined", "retried"}
    return {
        "reason": _texts(reasons) | {"malformed_detection", "repeated_notification"},
        "role": _texts({*RoleChoice} - {RoleChoice.ALL}),
        "outcome": _texts(outcomes) | {"granted", "denied", "held", "hit", "miss", "unknown"},
        "layer": frozenset({"process", "redis"}),
        "state": frozenset({"open", "half_open", "closed"}),
        "server": frozenset({"redis", "sql"}),
        "cause": frozenset({"retention"}),
        "format": frozenset(get_args(ContentFormat)) - {"connector"},
        "step": _steps(),
    }


def _texts(members: set[Any]) -> frozenset[str]:
    return frozenset(each.value if isinstance(each, StrEnum) else each for each in members)


def _steps() -> frozenset[str]:
    """The steps are named where they are timed."""
    timed = re.compile(r'step\("(\w+)"\)')
    sources = [path.read_text() for path in (ROOT / "engine").rglob("*.py")]
    return frozenset(name for source in sources for name in timed.findall(source))
