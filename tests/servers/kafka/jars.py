"""Kafka's jars: fetched once by Maven, kept in a cache that several runs may share."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.servers.missing import ServerMissingError
from tests.servers.process import find_program

_POM = Path(__file__).with_name("pom.xml")


def jars_directory() -> Path:
    """The directory with the jars, fetched if need be (40 MB). Raises ServerMissingError."""
    return cached("kafka-4.1.0", _POM, _copy_dependencies)


def cached(name: str, source: Path, fetch: Callable[[Path], None]) -> Path:
    """A directory of the cache that `fetch` fills once for each content of `source`."""
    root = Path(os.environ.get("PROXIMITY_TEST_CACHE") or Path.home() / ".cache/proximity-engine")
    target = root / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:8]}"
    if not target.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix="fetching-") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            fetch(made)
            try:
                made.rename(target)
            except OSError:
                # Another run was quicker; what it fetched is the same.
                if not target.is_dir():
                    raise
    return target


def fetch_with(*command: str | Path) -> None:
    """Run a command that downloads. Raises ServerMissingError with what it printed."""
    try:
        done = subprocess.run(
            command,
            timeout=600,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerMissingError(f"{command[0]} did not end in time") from error
    if done.returncode:
        raise ServerMissingError(f"{command[0]} could not fetch it: {done.stdout.strip()[-300:]}")


def _copy_dependencies(jars: Path) -> None:
    maven = find_program("mvn", package="maven")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    fetch_with(maven, "-q", "-B", "-f", _POM, *goal)


def java() -> Path:
    """Java 17 or later, which Kafka 4 wants. Raises ServerMissingError."""
    program = find_program("java", package="openjdk-17-jre-headless")
    output = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=30, check=False
    ).stderr
    version = output.partition('"')[2].partition(".")[0].partition('"')[0]
    if not version.isdigit() or int(version) < 17:
        raise ServerMissingError(f"Java 17 or later is needed, {program} says: {output.strip()!r}")
    return program
