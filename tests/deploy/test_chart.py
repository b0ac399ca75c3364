"""The Helm chart: its values are checked, and helm and Kubernetes accept what it renders."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm.__main__ import FILE, text
from tests.deploy.chart import (
    CHART,
    PARTS,
    component,
    each_file,
    faults_of_manifest,
    helm,
    rendered,
)
from tests.servers.helm import VERSIONS

each_version = pytest.mark.parametrize("version", VERSIONS)
# Kinds of operators, which have no schema here.
OPERATORS = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "KafkaTopic"}


def test_the_schema_is_what_the_module_makes() -> None:
    """`python -m deploy.helm` writes it."""
    assert FILE.read_text() == text()


def test_values_have_every_name_that_the_schema_has() -> None:
    """So that the file of values documents what there is."""
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads(FILE.read_text())
    # Settings and keys of secrets are documented by `proximity settings`; global is Helm's own.
    assert _names(given) == _names_of(schema) - {"global"}


def _names(values: dict[str, Any], before: str = "") -> set[str]:
    names = set()
    for name, value in values.items():
        path = f"{before}{name}"
        names.add(path)
        free = ("settings", "secrets.keys", "labels", "resources")
        if isinstance(value, dict) and not path.endswith(free):
            names |= _names(value, f"{path}.")
    return names


def _names_of(schema: dict[str, Any], before: str = "") -> set[str]:
    names = set()
    for name, inner in schema.get("properties", {}).items():
        path = f"{before}{name}"
        names.add(path)
        if not path.endswith(("settings", "secrets.keys")):
            names |= _names_of(inner, f"{path}.")
    return names


@each_version
@each_file
def test_helm_finds_no_fault(values: Path | None, version: str) -> None:
    file = [] if values is None else ["--values", values]
    done = helm("lint", "--strict", CHART, *file, version=version)
    assert done.returncode == 0, done.stdout


@each_file
def test_kubernetes_would_take_it(values: Path | None) -> None:
    manifests = rendered(values)
    assert set(map(component, manifests)) >= PARTS
    faults = {
        f"{each['kind']} {each['metadata']['name']}": faults_of_manifest(each) for each in manifests
    }
    assert {name: fault for name, fault in faults.items() if fault} == {}
    unknown = {name.split()[0] for name, fault in faults.items() if fault is None}
    assert unknown <= OPERATORS
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "wrong",
    [
        'settings.KAFKA_BOOTSTRAP="x"',
        'settings.REDIS_URL="redis://:secret@host"',
        "settings.BATCH_RECORDS=0",
        'settings.KAFKA_SECURITY_PROTOCOL="TLS"',
        'roles.collector={"replicas":1}',
        'image.digest="latest"',
    ],
)
def test_values_that_cannot_work_are_refused(wrong: str) -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.31.0", "--set-json", wrong)
    assert done.returncode != 0
    assert "schema" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (
            ['roles.trigger.autoscaling={"kind":"keda","min":7,"max":6}'],
            "trigger.autoscaling: min 7 is over max 6",
        ),
        (
            ["settings.IN_FLIGHT_BYTES=1073741824"],
            "IN_FLIGHT_BYTES: 1073741824 is not below the memory limit of roles.trigger, 640Mi",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(wrong: list[str], reason: str) -> None:
    sets = [word for each in wrong for word in ("--set-json", each)]
    done = helm("template", "x", CHART, "--kube-version", "1.31.0", *sets)
    assert done.returncode != 0
    assert reason in done.stderr
