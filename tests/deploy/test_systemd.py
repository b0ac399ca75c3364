"""The systemd units: what they run, what they set, and that systemd understands them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.process.settings import PREFIX, Settings, variable_name
from engine.process.settings_sources import file_variable, secret_settings
from tests.deploy.files import DEPLOY, parse

SYSTEMD = DEPLOY / "systemd"
SERVICES = sorted(SYSTEMD.glob("*.service"))
FILES = sorted(SYSTEMD.glob("*.env"))
ROLES = ("trigger", "connector", "recorder")
PROGRAM = "/opt/proximity/bin/proximity"

each_service = pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)


def _values(path: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", path.read_text(), flags=re.MULTILINE)


@each_service
def test_the_command_is_one_of_proximity(path: Path) -> None:
    (command,) = _values(path, "ExecStart")
    program, *words = command.split()
    assert program == PROGRAM
    for role in ROLES if "%i" in command else ("",):
        parse([word.replace("%i", role) for word in words])


@each_service
def test_secrets_are_handed_over_as_files(path: Path) -> None:
    credentials = dict(each.split(":", 1) for each in _values(path, "LoadCredential"))
    given = dict(each.split("=", 1) for each in _values(path, "Environment"))
    of_files = {file_variable(name) for name in secret_settings()}
    for name, value in given.items():
        if name in of_files:
            assert value.removeprefix("%d/") in credentials
        else:
            assert name in {variable_name(field) for field in Settings.model_fields}
    assert {value for value in given.values() if "%d" in value} == {f"%d/{n}" for n in credentials}
    assert not {variable_name(name) for name in secret_settings()} & given.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_settings_hold_settings_and_no_secret(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    open_settings = set(Settings.model_fields) - set(secret_settings())
    for line in lines:
        name, _, value = line.partition("=")
        assert name.removeprefix(PREFIX).lower() in open_settings
        assert value
    assert lines


@each_service
def test_there_is_time_to_drain(path: Path) -> None:
    drain = Settings.model_fields["drain_timeout"].default
    for seconds in _values(path, "TimeoutStopSec"):
        assert int(seconds) > drain
    assert _values(path, "TimeoutStopSec") or path.name == "proximity-migrate.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_them(tmp_path: Path) -> None:
    for path in (*SERVICES, SYSTEMD / "proximity.target"):
        text = path.read_text().replace(PROGRAM, "/bin/true")
        text = re.sub(r"^(User|Group)=.*", r"\1=root", text, flags=re.MULTILINE)
        (tmp_path / path.name).write_text(text)
    units = [tmp_path / name.replace("@.", "@trigger.") for name in _unit_names()]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"SYSTEMD_LOG_LEVEL": "warning", "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    # Faults of this machine's other units are not this project's.
    assert [line for line in done.stderr.splitlines() if "proximity" in line] == []


def _unit_names() -> list[str]:
    return ["proximity.target", *(path.name for path in SERVICES)]
