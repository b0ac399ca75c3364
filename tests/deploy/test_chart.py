"""The Helm chart, rendered by helm itself: its values are checked, helm and Kubernetes accept what
it renders, and that runs the product with the right settings and rights."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from deploy.helm.__main__ import FILE, text
from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import file_variable, load_settings, secret_settings
from tests.deploy.test_prometheus import faults_of
from tests.servers.helm import VERSIONS, helm_program
from tests.servers.missing import skipping
from tests.servers.proximity import ROOT

CHART = ROOT / "deploy" / "helm" / "proximity"
VALUES = ROOT / "deploy" / "helm" / "values"
THREE = VALUES / "three-nodes.yaml"
PARTS = {"trigger", "connector", "recorder", "interface"}
# Kinds of operators, which have no schema here.
OPERATORS = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "KafkaTopic"}
_SCHEMAS = json.loads((Path(__file__).parent / "kubernetes-1.31.json").read_text())
each_file = pytest.mark.parametrize(
    "values", [None, *sorted(VALUES.glob("*.yaml"))], ids=lambda path: getattr(path, "stem", "none")
)

Manifest = dict[str, Any]


def helm(*arguments: object, version: str = "v4") -> "subprocess.CompletedProcess[str]":
    """Run it. Skips where it cannot be had, unless servers are required."""
    with skipping("Helm", instead="PATH"):
        program = helm_program(version)
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )


@cache
def rendered(values: Path | None, *sets: str) -> tuple[Manifest, ...]:
    """What `helm template` makes of the chart with a file of values."""
    file = [] if values is None else ["--values", values]
    settings = [word for each in sets for word in ("--set-json", each)]
    done = helm("template", "shop", CHART, "--kube-version", "1.31.0", *file, *settings)
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def of_kind(manifests: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    """The manifests of a kind by the component that they are of."""
    label = "app.kubernetes.io/component"
    return {each["metadata"]["labels"][label]: each for each in manifests if each["kind"] == kind}


def pods(manifests: tuple[Manifest, ...]) -> dict[str, dict[str, Any]]:
    """What Deployments, Jobs and Pods run, by component."""
    found = {name: each["spec"] for name, each in of_kind(manifests, "Pod").items()}
    for kind in ("Deployment", "Job"):
        for name, each in of_kind(manifests, kind).items():
            found[name] = each["spec"]["template"]["spec"]
    return found


def faults_in(manifests: tuple[Manifest, ...]) -> list[str]:
    """What Kubernetes would refuse."""
    faults = []
    for each in manifests:
        kind = f"{each['apiVersion']}/{each['kind']}"
        if each["kind"] in OPERATORS:
            continue
        schema = _SCHEMAS["kinds"][kind] | {"$defs": _SCHEMAS["$defs"]}
        faults += [error.message for error in Draft202012Validator(schema).iter_errors(each)]
    return faults


def test_the_schema_is_what_the_module_makes() -> None:
    """`python -m deploy.helm` writes it."""
    assert FILE.read_text() == text()


@each_file
def test_helm_and_kubernetes_find_no_fault(values: Path | None) -> None:
    file = [] if values is None else ["--values", values]
    for version in VERSIONS:
        done = helm("lint", "--strict", CHART, *file, version=version)
        assert done.returncode == 0, done.stdout
    manifests = rendered(values)
    assert pods(manifests).keys() >= PARTS
    assert faults_in(manifests) == []
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
        ('interface.autoscaling={"kind":"cpu","min":7}', "interface.autoscaling: min 7 is over"),
        ("settings.IN_FLIGHT_BYTES=671088640", "671088640 is not below the memory limit of roles"),
        ('settings.DRAIN_TIMEOUT="1m"', "1m is not below terminationGracePeriodSeconds, 40"),
    ],
)
def test_values_that_cannot_work_are_refused(wrong: str, reason: str) -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.31.0", "--set-json", wrong)
    assert done.returncode != 0
    assert reason in done.stderr


@each_file
def test_the_settings_of_every_container_are_accepted(
    values: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers = [each["containers"][0] for each in pods(rendered(values)).values()]
    environments = [{each["name"]: each["value"] for each in c["env"]} for c in containers]
    assert len(environments) == len(PARTS | {"migrate", "test"})
    assert all(environment == environments[0] for environment in environments)
    assert not environments[0].keys() & {PREFIX + name.upper() for name in secret_settings()}
    secrets = {"DATABASE_URL": "postgresql://u:p@h/x", "REDIS_URL": "rediss://h"}
    of_files = {file_variable(name) for name in secret_settings()}
    for name, value in environments[0].items():
        if name in of_files or value.startswith("/run/proximity/tls/"):
            secret = secrets.get(
                name.removeprefix(PREFIX).removesuffix("_FILE"), "a secret of a test"
            )
            (tmp_path / name).write_text(secret)
            monkeypatch.setenv(name, str(tmp_path / name))
        else:
            monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.metrics_port == settings.api_metrics_port == 9464


def test_a_part_runs_its_command_and_reports_what_it_can() -> None:
    drain = Settings.model_fields["drain_timeout"].default
    expected = {name: ["run", "--role", name] for name in PARTS - {"interface"}}
    expected |= {"interface": ["api"], "migrate": ["migrate"], "test": ["check"]}
    found = pods(rendered(VALUES / "managed-kafka.yaml"))
    assert {name: pod["containers"][0]["args"] for name, pod in found.items()} == expected
    for name, pod in found.items():
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert mounted["/run/proximity/secrets"] == "secrets"
        assert mounted["/run/proximity/tls"] == "tls"
        if name in PARTS:
            probes = {k: container[k]["httpGet"]["path"] for k in container if "Probe" in k}
            healthy = dict.fromkeys(("startupProbe", "livenessProbe"), "/healthz")
            assert probes == healthy | {"readinessProbe": "/readyz"}
            assert pod["terminationGracePeriodSeconds"] > drain


def test_only_the_connector_reaches_the_world() -> None:
    policies = [each["spec"] for each in rendered(None) if each["kind"] == "NetworkPolicy"]
    (policy,) = [
        each for each in policies if any("ports" not in rule for rule in each.get("egress", ()))
    ]
    (expression,) = policy["podSelector"]["matchExpressions"]
    assert expression["values"] == ["connector"]
    assert "10.0.0.0/8" in policy["egress"][0]["to"][0]["ipBlock"]["except"]


def test_selectors_find_the_pods() -> None:
    manifests = rendered(THREE)
    deployments, services = of_kind(manifests, "Deployment"), of_kind(manifests, "Service")

    def found(selector: dict[str, str]) -> set[str]:
        labels = {n: d["spec"]["template"]["metadata"]["labels"] for n, d in deployments.items()}
        return {name for name, given in labels.items() if selector.items() <= given.items()}

    assert found(services["interface"]["spec"]["selector"]) == {"interface"}
    assert found(services["metrics"]["spec"]["selector"]) == PARTS
    for kind in ("PodDisruptionBudget", "Deployment"):
        for name, manifest in of_kind(manifests, kind).items():
            assert found(manifest["spec"]["selector"]["matchLabels"]) == {name}
    (monitor,) = of_kind(manifests, "ServiceMonitor").values()
    labels = services["metrics"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    # The job that rules and dashboards name.
    assert labels[monitor["spec"]["jobLabel"]] == "proximity"


def test_scaling_uses_a_measured_metric() -> None:
    scaled = of_kind(rendered(THREE), "ScaledObject")
    assert set(scaled) == PARTS - {"interface"}
    for name, manifest in scaled.items():
        (trigger,) = manifest["spec"]["triggers"]
        query = trigger["metadata"]["query"]
        assert f'role="{name}"' in query
        assert faults_of(query.replace(',namespace="default"', "")) == []
        assert "replicas" not in of_kind(rendered(THREE), "Deployment")[name]["spec"]
    assert set(of_kind(rendered(THREE), "HorizontalPodAutoscaler")) == {"interface"}


def test_what_a_cluster_adds_reaches_every_pod() -> None:
    manifests = rendered(
        None,
        'extraEnv=[{"name":"HTTPS_PROXY","value":"http://proxy:3128"}]',
        f'image.digest="sha256:{"a" * 64}"',
        'roles.connector.nodeSelector={"pool":"egress"}',
        'roles.trigger.resources={"limits":{"memory":671088640}}',
    )
    assert faults_in(manifests) == []
    for name, pod in pods(manifests).items():
        (container,) = pod["containers"]
        assert container["image"] == f"proximity-engine@sha256:{'a' * 64}"
        assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
        assert pod.get("nodeSelector") == ({"pool": "egress"} if name == "connector" else None)
