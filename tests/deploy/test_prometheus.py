"""Alerts and dashboards name what exists, promtool understands them, each alert is seen firing and
has its entry in the runbook."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from api.middleware import ApiMetrics
from deploy.grafana.__main__ import DASHBOARDS, DIRECTORY, files
from deploy.grafana.panels import Panel
from deploy.grafana.shared import INTERVAL
from engine.process.metrics import Metrics
from engine.process.workers import WORKER_UP
from tests.servers.missing import skipping
from tests.servers.process import find_program
from tests.servers.proximity import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yaml"))
RULE_TESTS = sorted((PROMETHEUS / "tests").glob("*.yaml"))
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
PARTS = ("What it means.", "What users feel.", "Look at.", "Do.")
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
    """All rules that are of this kind: `alert` or `record`."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


ALERTS = {rule["alert"]: rule for rule in rules("alert")}


@cache
def known_labels() -> dict[str, set[str]]:
    """The labels of every series by its name: the product's, Prometheus' own, recorded ones."""
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


def test_metrics_and_labels_exist() -> None:
    queries = [rule["expr"] for rule in rules("alert") + rules("record")]
    for board in DASHBOARDS:
        for panel in (each for each in board.content if isinstance(each, Panel)):
            for query in panel.queries:
                queries.append(query.expression)
                of_metrics = [known_labels()[name] for name in metrics_of(query.expression)]
                left = grouped_labels(query.expression) or set[str]().union(*of_metrics)
                assert set(re.findall(r"{{(\w+)}}", query.legend)) <= left, query.legend
    assert all("geofence_exit" in each for each in queries if ":records_skipped" in each)
    for text in re.findall(r"`(proximity_[^`]+)`", RUNBOOK):
        name, brace, rest = text.partition("{")
        is_histogram = name.endswith("_seconds") and not name.endswith("skew_seconds")
        queries.append(f"{name}{'_count' if is_histogram else ''}{brace}{rest}")
    faults = {query: faults_of(query) for query in queries}
    assert {query: fault for query, fault in faults.items() if fault} == {}


def test_promtool_finds_no_fault_and_its_tests_pass(tmp_path: Path) -> None:
    with skipping("Prometheus", instead="PATH"):
        program = find_program("promtool", package="prometheus")
    queries = [query.expression for each in DASHBOARDS for query in each.queries()]
    recorded = [
        {"record": f"query:{number}", "expr": query.replace(INTERVAL, "1m")}
        for number, query in enumerate(queries)
    ]
    of_dashboards = tmp_path / "queries.yaml"
    groups = {"groups": [{"name": "queries", "rules": recorded}]}
    of_dashboards.write_text(yaml.safe_dump(groups))
    for arguments in (
        ("check", "rules", *RULES, of_dashboards),
        ("check", "config", PROMETHEUS / "prometheus.yml"),
        ("test", "rules", *RULE_TESTS),
    ):
        subprocess.run([program, *map(str, arguments)], check=True, timeout=300)


def test_every_alert_is_seen_firing_at_the_job_that_is_scraped() -> None:
    fired = set[str]()
    for path in RULE_TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for question in test["promql_expr_test"]:
                labels = " ".join(each.get("labels", "") for each in question["exp_samples"] or ())
                fired |= set(re.findall(r'alertname="(\w+)"', labels))
    assert fired == set(ALERTS)
    jobs = {job for rule in ALERTS.values() for job in re.findall(r'job="(\w+)"', rule["expr"])}
    read = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert jobs == {job["job_name"] for job in read["scrape_configs"]}


def test_every_alert_has_its_entry_in_the_runbook() -> None:
    parts = re.split(r"^## (\w+)\n", RUNBOOK, flags=re.MULTILINE)
    entries = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"
        places = [entries[name].index(f"**{part}**") for part in PARTS]
        assert places == sorted(places)
    assert set(re.findall(r"\bProximity[A-Z]\w+", RUNBOOK)) <= set(ALERTS)


def test_the_dashboards_that_are_checked_in_are_the_generated_ones() -> None:
    """`python -m deploy.grafana` writes them."""
    assert {path.name: path.read_text() for path in DIRECTORY.glob("*.json")} == files()
