"""The systemd units, and the documents for operators: what they run, set and name exists."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.cli import application as cli
from engine.process.settings import PREFIX, Settings, variable_name
from engine.process.settings_sources import file_variable, secret_settings
from tests.cli.given import parse
from tests.servers.proximity import ROOT

SYSTEMD = ROOT / "deploy" / "systemd"
SERVICES = sorted(SYSTEMD.glob("*.service"))
PROGRAM = "/opt/proximity/bin/proximity"
SECRETS = set(secret_settings())
FILES = {file_variable(name) for name in SECRETS}
OPEN = {variable_name(name) for name in set(Settings.model_fields) - SECRETS}
HARDENED = {
    *("NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "ProtectHome=yes"),
    *("PrivateTmp=yes", "PrivateDevices=yes", "ProtectClock=yes", "ProtectHostname=yes"),
    *("ProtectKernelTunables=yes", "ProtectKernelModules=yes", "ProtectKernelLogs=yes"),
    *("RestrictSUIDSGID=yes", "RestrictRealtime=yes", "RestrictNamespaces=yes", "UMask=0077"),
}


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
    assert given.keys() <= FILES | OPEN
    assert {given[name] for name in given.keys() & FILES} == {f"%d/{n}" for n in credentials}
    drain = Settings.model_fields["drain_timeout"].default
    seconds = _values(path, "TimeoutStopSec")
    assert path.name == "proximity-migrate.service" or int(seconds[0]) > drain
    assert set(path.read_text().splitlines()) >= HARDENED


def test_files_of_settings_hold_settings_and_no_secret() -> None:
    for path in SYSTEMD.glob("*.env"):
        lines = re.findall(r"^#?(\w+)=(.*)$", path.read_text(), re.MULTILINE)
        assert lines
        assert {name for name, _ in lines} <= OPEN
        assert all(value for _, value in lines)


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
        timeout=300,
        env={"SYSTEMD_LOG_LEVEL": "warning", "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    # Faults of this machine's other units are not this project's.
    assert [line for line in done.stderr.splitlines() if "proximity" in line] == []


@pytest.mark.parametrize("name", ["operations.md", "runbook.md"])
def test_settings_commands_and_links_of_a_document_exist(name: str) -> None:
    document = ROOT / "docs" / name
    text = document.read_text()
    known = {variable_name(field) for field in Settings.model_fields} | FILES
    others = {"PROXIMITY_TEST_FULL", "SASL_SSL"}  # the latter is a value
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text)) - others
    assert named <= known | {each.removeprefix(PREFIX) for each in known}
    # A command in a span of code, or at the begin of a line of code.
    lines = re.findall(r"(?:`|^    )(?:\.venv/bin/)?proximity ([a-z][^`\n]*)", text, re.MULTILINE)
    assert lines
    for line in lines:
        words = line.split()
        group: Any = cli.command_group().load()
        while hasattr(group, "commands"):
            group = group.commands[words.pop(0)]
        options = {option for each in group.params for option in each.opts}
        assert set(re.findall(r"--[a-z-]+", line)) <= options, line
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (document.parent / link).exists(), link
