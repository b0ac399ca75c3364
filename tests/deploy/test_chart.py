"""The Helm chart: its values are checked, and helm and Kubernetes accept what it renders."""

from pathlib import Path

import pytest

from deploy.helm.__main__ import FILE, text
from tests.deploy.chart import (
    CHART,
    PARTS,
    component,
    each_file,
    faults_of_manifest,
    helm,
    of_kind,
    rendered,
)
from tests.servers.helm import VERSIONS

each_version = pytest.mark.parametrize("version", VERSIONS)
# Kinds of operators, which have no schema here.
OPERATORS = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "KafkaTopic"}


def test_the_schema_is_what_the_module_makes() -> None:
    """`python -m deploy.helm` writes it."""
    assert FILE.read_text() == text()


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
    ("wrong", "reason"),
    [
        ('settings.KAFKA_BOOTSTRAP="x"', "schema"),
        ('settings.REDIS_URL="redis://:secret@host"', "schema"),
        ("settings.BATCH_RECORDS=0", "schema"),
        ('roles.collector={"replicas":1}', "schema"),
        ('image.digest="latest"', "schema"),
        (
            'roles.trigger.autoscaling={"kind":"keda","min":7,"max":6}',
            "trigger.autoscaling: min 7 is over max 6",
        ),
        (
            "settings.IN_FLIGHT_BYTES=1073741824",
            "IN_FLIGHT_BYTES: 1073741824 is not below the memory limit of roles.trigger, 640Mi",
        ),
    ],
)
def test_values_that_cannot_work_are_refused(wrong: str, reason: str) -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.31.0", "--set-json", wrong)
    assert done.returncode != 0
    assert reason in done.stderr


def test_helm_test_runs_the_check_with_the_settings_of_a_role() -> None:
    pod = of_kind(rendered(None), "Pod")["test"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["check"]
    template = of_kind(rendered(None), "Deployment")["trigger"]["spec"]["template"]
    (role,) = template["spec"]["containers"]
    for name in ("image", "env", "securityContext"):
        assert container[name] == role[name], name
