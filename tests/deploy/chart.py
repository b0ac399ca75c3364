"""The Helm chart, rendered by helm itself."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deploy.files import DEPLOY
from tests.servers.helm import helm_program
from tests.servers.missing import skipping

CHART = DEPLOY / "helm" / "proximity"
VALUES = DEPLOY / "helm" / "values"
PARTS = {"trigger", "connector", "recorder", "interface"}
each_file = pytest.mark.parametrize(
    "values", [None, *sorted(VALUES.glob("*.yaml"))], ids=lambda path: getattr(path, "stem", "none")
)
_SCHEMAS = json.loads((Path(__file__).parent / "kubernetes-1.31.json").read_text())

Manifest = dict[str, Any]


def helm(*arguments: object, version: str = "v4") -> "subprocess.CompletedProcess[str]":
    """Run it. Skips where it cannot be had, unless servers are required."""
    with skipping("Helm", instead="PATH"):
        program = helm_program(version)
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
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
    return {component(each): each for each in manifests if each["kind"] == kind}


def component(manifest: Manifest) -> str:
    """The part of the product that a manifest is of."""
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def pods(manifests: tuple[Manifest, ...]) -> dict[str, dict[str, Any]]:
    """What Deployments, Jobs and Pods run, by component."""
    found = {name: each["spec"] for name, each in of_kind(manifests, "Pod").items()}
    for kind in ("Deployment", "Job"):
        for name, each in of_kind(manifests, kind).items():
            found[name] = each["spec"]["template"]["spec"]
    return found


def faults_of_manifest(manifest: Manifest) -> list[str] | None:
    """What Kubernetes would refuse; None for a kind that is not Kubernetes' own."""
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"
    if kind not in _SCHEMAS["kinds"]:
        return None
    schema = _SCHEMAS["kinds"][kind] | {"$defs": _SCHEMAS["$defs"]}
    found = Draft202012Validator(schema).iter_errors(manifest)
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in found]
