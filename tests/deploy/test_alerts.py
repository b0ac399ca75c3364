"""The alert rules: what they name exists, each is tested by promtool and has its runbook entry."""

import re
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY, ROOT, promtool
from tests.deploy.queries import RULES, faults_of, rules

RUNBOOK = ROOT / "docs" / "runbook.md"
RULE_TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yaml"))
PARTS = ("What it means.", "What users feel.", "Look at.", "Do.")
ALERTS = {rule["alert"]: rule for rule in rules("alert")}


@pytest.mark.parametrize("rule", rules("alert") + rules("record"), ids=lambda rule: _name(rule))
def test_metrics_of_a_rule_exist(rule: dict[str, Any]) -> None:
    assert faults_of(rule["expr"]) == []


def _name(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def test_rules_and_configuration_are_accepted() -> None:
    promtool("check", "rules", *RULES)
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yml")


def test_promtool_tests_pass() -> None:
    promtool("test", "rules", *RULE_TESTS)


def test_every_alert_is_seen_firing_and_silent() -> None:
    fired, judged = set(), set()
    for path in RULE_TESTS:
        file = yaml.safe_load(path.read_text())
        of_file = {
            rule["alert"]
            for named in file["rule_files"]
            for group in yaml.safe_load((path.parent / named).read_text())["groups"]
            for rule in group["rules"]
            if "alert" in rule
        }
        for test in file["tests"]:
            for question in test["promql_expr_test"]:
                samples = question.get("exp_samples", [])
                text = " ".join(sample.get("labels", "") for sample in samples)
                fired |= set(re.findall(r'alertname="(\w+)"', text))
                if not samples and question["expr"].startswith("ALERTS"):
                    judged |= of_file
    assert fired == set(ALERTS)
    assert judged == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_its_entry_in_the_runbook(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"
    assert rule["annotations"]["summary"].endswith(".")
    places = [_entries()[name].index(f"**{part}**") for part in PARTS]
    assert places == sorted(places)


def _entries() -> dict[str, str]:
    parts = re.split(r"^## (\w+)\n", RUNBOOK.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_names_in_the_runbook_exist() -> None:
    """Alerts, settings and metrics; each is written as a word of its own."""
    text = RUNBOOK.read_text()
    assert set(re.findall(r"\bProximity[A-Z]\w+", text)) <= set(ALERTS)
    for query in re.findall(r"`(proximity_[^`]+)`", text):
        assert faults_of(_as_series(query)) == []


def _as_series(query: str) -> str:
    name, brace, rest = query.partition("{")
    is_histogram = name.endswith("_seconds") and not name.endswith("skew_seconds")
    return f"{name}{'_count' if is_histogram else ''}{brace}{rest}"


def test_alerts_look_at_the_job_that_is_scraped() -> None:
    jobs = {job for rule in ALERTS.values() for job in re.findall(r'job="(\w+)"', rule["expr"])}
    read = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert jobs == {job["job_name"] for job in read["scrape_configs"]}
