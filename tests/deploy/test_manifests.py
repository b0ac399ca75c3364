"""The manifests that the chart renders run the product with the right settings and rights."""

from pathlib import Path
from typing import Any

import pytest

from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import file_variable, load_settings, secret_settings
from tests.deploy.chart import (
    MANAGED,
    PARTS,
    THREE,
    Manifest,
    component,
    each_file,
    faults_of_manifest,
    of_kind,
    rendered,
)
from tests.deploy.queries import faults_of


@each_file
def test_the_settings_of_every_container_are_accepted(
    values: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)
    secrets = {"DATABASE_URL": "postgresql://u:p@h/x", "REDIS_URL": "rediss://h"}
    files = {file_variable(name) for name in secret_settings()}
    environments = [_environment(each) for each in _containers(rendered(values))]
    assert len(environments) == len(PARTS) + 1
    assert all(environment == environments[0] for environment in environments)
    for name, value in environments[0].items():
        given = value
        if name in files:
            file = tmp_path / name
            file.write_text(secrets.get(name[len(PREFIX) : -len("_FILE")], "a secret"))
            given = str(file)
        elif value.startswith("/run/proximity/tls/"):
            (tmp_path / name).write_text("a certificate")
            given = str(tmp_path / name)
        monkeypatch.setenv(name, given)
    settings = load_settings()
    assert settings.metrics_port == settings.api_metrics_port == 9464


def _containers(manifests: tuple[Manifest, ...]) -> list[dict[str, Any]]:
    pods = [m for m in manifests if m["kind"] in ("Deployment", "Job")]
    return [c for pod in pods for c in pod["spec"]["template"]["spec"]["containers"]]


def _environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


def test_a_part_runs_its_command_and_reports_what_it_can() -> None:
    deployments = of_kind(rendered(None), "Deployment")
    assert set(deployments) == PARTS
    for name, deployment in deployments.items():
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        expected = ["api"] if name == "interface" else ["run", "--role", name]
        assert container["args"] == expected
        paths = {k: container[k]["httpGet"]["path"] for k in container if k.endswith("Probe")}
        assert paths == {
            "startupProbe": "/healthz",
            "livenessProbe": "/healthz",
            "readinessProbe": "/readyz",
        }
        drain = Settings.model_fields["drain_timeout"].default
        assert pod["terminationGracePeriodSeconds"] > drain
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["enableServiceLinks"] is False
    (job,) = [each for each in rendered(None) if each["kind"] == "Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate"]


def test_no_secret_is_a_variable() -> None:
    for container in _containers(rendered(MANAGED)):
        named = {name.removeprefix(PREFIX).lower() for name in _environment(container)}
        assert not named & set(secret_settings())
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert mounted["/run/proximity/secrets"] == "secrets"
        assert mounted["/run/proximity/tls"] == "tls"


def test_only_the_connector_reaches_the_world() -> None:
    policies = [each for each in rendered(None) if each["kind"] == "NetworkPolicy"]
    (policy,) = [
        each
        for each in policies
        if any("ports" not in rule for rule in each["spec"].get("egress", ()))
    ]
    (expression,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert expression["values"] == ["connector"]
    (rule,) = policy["spec"]["egress"]
    assert "10.0.0.0/8" in rule["to"][0]["ipBlock"]["except"]


def test_selectors_find_the_pods() -> None:
    manifests = rendered(THREE)
    pods = {
        component(each): each["spec"]["template"]["metadata"]["labels"]
        for each in manifests
        if each["kind"] == "Deployment"
    }
    services = of_kind(manifests, "Service")
    assert _found(services["interface"]["spec"]["selector"], pods) == {"interface"}
    assert _found(services["metrics"]["spec"]["selector"], pods) == PARTS
    for kind in ("PodDisruptionBudget", "Deployment"):
        for name, manifest in of_kind(manifests, kind).items():
            assert _found(manifest["spec"]["selector"]["matchLabels"], pods) == {name}
    (monitor,) = of_kind(manifests, "ServiceMonitor").values()
    labels = {name: each["metadata"]["labels"] for name, each in services.items()}
    assert _found(monitor["spec"]["selector"]["matchLabels"], labels) == {"metrics"}
    # The job that rules and dashboards name.
    assert labels["metrics"][monitor["spec"]["jobLabel"]] == "proximity"


def _found(selector: dict[str, str], labels: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, given in labels.items() if selector.items() <= given.items()}


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
    )
    assert [fault for each in manifests for fault in faults_of_manifest(each) or []] == []
    pods = {component(each): _pod(each) for each in manifests if _pod(each)}
    assert set(pods) == PARTS | {"migrate", "test"}
    for pod in pods.values():
        (container,) = pod["containers"]
        assert container["image"] == f"proximity-engine@sha256:{'a' * 64}"
        assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
    assert {n: pod.get("nodeSelector") for n, pod in pods.items() if "nodeSelector" in pod} == {
        "connector": {"pool": "egress"}
    }


def _pod(manifest: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = manifest.get("spec", {})
    found: dict[str, Any] = spec if manifest["kind"] == "Pod" else {}
    return spec["template"]["spec"] if manifest["kind"] in ("Deployment", "Job") else found
