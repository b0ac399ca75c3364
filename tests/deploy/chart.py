"""The Helm chart, rendered by helm itself."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from engine.cli.run import RoleChoice
from tests.deploy.files import DEPLOY
from tests.servers.helm import helm_program
from tests.servers.missing import skipping

CHART = DEPLOY / "helm" / "proximity"
VALUES = sorted((DEPLOY / "helm" / "values").glob("*.yaml"))
THREE = DEPLOY / "helm" / "values" / "three-nodes.yaml"
MANAGED = DEPLOY / "helm" / "values" / "managed-kafka.yaml"
PARTS = {each.value for each in RoleChoice if each is not RoleChoice.ALL} | {"interface"}
each_file = pytest.mark.parametrize(
    "values", [None, *VALUES], ids=lambda path: getattr(path, "stem", "default")
)
RELEASE = "shop"
_KUBERNETES = "1.31"
_SCHEMAS = Path(__file__).parent / f"kubernetes-{_KUBERNETES}.json"

Manifest = dict[str, Any]


def helm(*arguments: object, version: str = "v4") -> "subprocess.CompletedProcess[str]":
    """Run it. Skips where it cannot be had, unless servers are required."""
    with skipping("Helm", instead="PATH"):
        program = helm_program(version)
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


@cache
def rendered(values: Path | None, *sets: str, version: str = "v4") -> tuple[Manifest, ...]:
    """What `helm template` makes of the chart with a file of values."""
    file = [] if values is None else ["--values", values]
    settings = [word for each in sets for word in ("--set-json", each)]
    options = ["--kube-version", f"{_KUBERNETES}.0", *file, *settings]
    done = helm("template", RELEASE, CHART, *options, version=version)
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def of_kind(manifests: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    """The manifests of a kind by the component that they are of, else by name."""
    return {component(each): each for each in manifests if each["kind"] == kind}


def component(manifest: Manifest) -> str:
    """The part of the product that a manifest is of."""
    labels: dict[str, str] = manifest["metadata"]["labels"]
    return labels["app.kubernetes.io/component"]


@cache
def _schemas() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_SCHEMAS.read_text())
    return read


def faults_of_manifest(manifest: Manifest) -> list[str] | None:
    """What Kubernetes would refuse; None for a kind that is not Kubernetes' own."""
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"
    if kind not in _schemas()["kinds"]:
        return None
    schema = _schemas()["kinds"][kind] | {"$defs": _schemas()["$defs"]}
    found = Draft202012Validator(schema).iter_errors(manifest)
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in found]
