"""The Grafana dashboards: as checked in, in place, and naming what exists."""

import re
from pathlib import Path

import yaml

from deploy.grafana.__main__ import DASHBOARDS, DIRECTORY, files
from deploy.grafana.panels import Panel
from deploy.grafana.shared import INTERVAL
from tests.deploy.files import promtool
from tests.deploy.queries import faults_of, grouped_labels, known_labels, metrics_of


def test_the_checked_in_files_are_the_generated_ones() -> None:
    """`python -m deploy.grafana` writes it."""
    assert {path.name: path.read_text() for path in DIRECTORY.glob("*.json")} == files()


def test_metrics_and_labels_of_the_panels_exist() -> None:
    panels = [each for board in DASHBOARDS for each in board.content if isinstance(each, Panel)]
    for query in (query for panel in panels for query in panel.queries):
        assert faults_of(query.expression) == [], query.expression
        of_metrics = [known_labels()[name] for name in metrics_of(query.expression)]
        left = grouped_labels(query.expression) or set[str]().union(*of_metrics)
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= left, query.legend


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    queries = [query.expression for each in DASHBOARDS for query in each.queries()]
    recorded = [
        {"record": f"query:{number}", "expr": query.replace(INTERVAL, "1m")}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    promtool("check", "rules", file)
