"""The alert rules: what they name exists, each is tested by promtool and has its runbook entry."""

import re

import yaml

from tests.deploy.files import DEPLOY, ROOT, promtool
from tests.deploy.queries import RULES, faults_of, rules

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
RULE_TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yaml"))
PARTS = ("What it means.", "What users feel.", "Look at.", "Do.")
ALERTS = {rule["alert"]: rule for rule in rules("alert")}


def test_metrics_of_a_rule_exist() -> None:
    faults = {rule["expr"]: faults_of(rule["expr"]) for rule in rules("alert") + rules("record")}
    assert {query: fault for query, fault in faults.items() if fault} == {}


def test_promtool_finds_no_fault_and_its_tests_pass() -> None:
    promtool("check", "rules", *RULES)
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    promtool("test", "rules", *RULE_TESTS)


def test_every_alert_is_seen_firing() -> None:
    fired = set[str]()
    for path in RULE_TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for question in test["promql_expr_test"]:
                labels = " ".join(each.get("labels", "") for each in question["exp_samples"] or ())
                fired |= set(re.findall(r'alertname="(\w+)"', labels))
    assert fired == set(ALERTS)


def test_every_alert_has_its_entry_in_the_runbook() -> None:
    parts = re.split(r"^## (\w+)\n", RUNBOOK, flags=re.MULTILINE)
    entries = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"
        places = [entries[name].index(f"**{part}**") for part in PARTS]
        assert places == sorted(places)


def test_names_in_the_runbook_exist() -> None:
    """Alerts and metrics; each is written as a word of its own."""
    assert set(re.findall(r"\bProximity[A-Z]\w+", RUNBOOK)) <= set(ALERTS)
    for query in re.findall(r"`(proximity_[^`]+)`", RUNBOOK):
        name, brace, rest = query.partition("{")
        is_histogram = name.endswith("_seconds") and not name.endswith("skew_seconds")
        assert faults_of(f"{name}{'_count' if is_histogram else ''}{brace}{rest}") == [], query


def test_alerts_look_at_the_job_that_is_scraped() -> None:
    jobs = {job for rule in ALERTS.values() for job in re.findall(r'job="(\w+)"', rule["expr"])}
    read = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert jobs == {job["job_name"] for job in read["scrape_configs"]}
