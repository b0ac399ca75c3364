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
PROGRAM = "/opt/proximity/bin/proximity"
SECRETS = set(secret_settings())
OPEN = {variable_name(name) for name in set(Settings.model_fields) - SECRETS}


def _values(path: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", path.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_unit_runs_a_command_with_secrets_in_files_and_time_to_drain(path: Path) -> None:
    (command,) = _values(path, "ExecStart")
    program, *words = command.split()
    assert program == PROGRAM
    for role in ("trigger", "connector", "recorder") if "%i" in command else ("",):
        parse([word.replace("%i", role) for word in words])
    credentials = {each.partition(":")[0] for each in _values(path, "LoadCredential")}
    given = dict(each.split("=", 1) for each in _values(path, "Environment"))
    files = {file_variable(name) for name in SECRETS}
    assert given.keys() <= files | OPEN
    assert {given[name] for name in given.keys() & files} == {f"%d/{n}" for n in credentials}
    drain = Settings.model_fields["drain_timeout"].default
    seconds = _values(path, "TimeoutStopSec")
    assert path.name == "proximity-migrate.service" or int(seconds[0]) > drain


def test_files_of_settings_hold_settings_and_no_secret() -> None:
    for path in SYSTEMD.glob("*.env"):
        lines = re.findall(r"^#?(\w+)=(.*)$", path.read_text(), re.MULTILINE)
        assert lines
        for name, value in lines:
            assert name.startswith(PREFIX)
            assert name in OPEN
            assert value


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_them(tmp_path: Path) -> None:
    units = [SYSTEMD / "proximity.target", *SERVICES]
    for path in units:
        text = path.read_text().replace(PROGRAM, "/bin/true")
        text = re.sub(r"^(User|Group)=.*", r"\1=root", text, flags=re.MULTILINE)
        (tmp_path / path.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify"]
        + [str(tmp_path / path.name.replace("@.", "@trigger.")) for path in units],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"SYSTEMD_LOG_LEVEL": "warning", "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    # Faults of this machine's other units are not this project's.
    assert [line for line in done.stderr.splitlines() if "proximity" in line] == []
