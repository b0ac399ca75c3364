"""The systemd units, the compose file, the Dockerfile and the documents for operators: what they
run, set and name exists."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.process.settings import PREFIX, Settings, variable_name
from engine.process.settings_sources import file_variable, load_settings, secret_settings
from tests.cli.given import all_commands, parse
from tests.servers.proximity import ROOT

SYSTEMD = ROOT / "deploy" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
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


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
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
    units = [SYSTEMD / "proximity.target", *UNITS]
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


FILES_OF_GIT = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
).stdout.splitlines()
DOCUMENTS = [
    name
    for name in FILES_OF_GIT
    if name.endswith(".md") and not name.startswith(("tests/", "api/", "CHANGELOG"))
]
# Code at the beginning of a line, or in a span; `proximity` there begins a command.
_COMMAND = re.compile(r"(?:`|^ {4,})(?:\.venv/bin/)?proximity ([a-z][^`\n]*)", re.MULTILINE)
_FILE = re.compile(r"`(\w[\w./-]*\.(?:pyx?|lua|sql|json|yaml|service|target|md))`")


def anchors_of(document: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_settings_commands_files_and_links_of_a_document_exist(name: str) -> None:
    document = ROOT / name
    text = document.read_text()
    known = {variable_name(field) for field in Settings.model_fields} | FILES
    assert set(re.findall(rf"{PREFIX}(?!TEST_)[A-Z_]+(?==)", text)) <= known
    if name in ("docs/operations.md", "docs/runbook.md"):
        others = {"PROXIMITY_TEST_FULL", "SASL_SSL"}  # the latter is a value
        named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text)) - others
        assert named <= known | {each.removeprefix(PREFIX) for each in known}
    commands = all_commands()
    for line in _COMMAND.findall(text):
        words, group = line.split(), commands
        while hasattr(group, "commands") and words and not words[0].startswith("-"):
            first, *more = words.pop(0).rstrip(",:").split(r"\|")
            assert group.commands.keys() >= {first, *more}, line
            group = group.commands[first]
        options = {"--help", *(option for each in group.params for option in each.opts)}
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", line)) <= options, line
    for file in _FILE.findall(text):
        assert any(f"/{path}".endswith(f"/{file}") for path in FILES_OF_GIT), file
    for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
COMPOSED: dict[str, dict[str, Any]] = COMPOSE["services"]
ROLES = ("trigger", "connector", "recorder")
TEXT = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
INSTRUCTIONS = [line.split(maxsplit=1) for line in TEXT.splitlines() if line.strip(" #")]


def default(value: str) -> str:
    """The value with each `${NAME:-default}` replaced by its default, as compose does."""
    while "${" in value:
        value = re.sub(r"\$\{\w+(?::-([^{}]*))?\}", r"\1", value)
    return value


@pytest.mark.parametrize("name", [name for name, each in COMPOSED.items() if "build" in each])
def test_settings_and_commands_are_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = COMPOSED[name]
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, default(value))
    assert load_settings().kafka_bootstrap_servers == "kafka:9092"
    if name != "example":
        parse(service["command"])
        return
    for line in service["command"][0].split("&&"):
        program, *words = shlex.split(line)
        assert program == "proximity"
        parse([word.replace("/examples/", f"{ROOT}/docs/examples/") for word in words])


@pytest.mark.parametrize("name", COMPOSED)
def test_a_service_is_exact_and_bounded_and_stays_on_loopback(name: str) -> None:
    service = COMPOSED[name]
    _, _, tag = service["image"].partition(":")
    numbers = 2 if name == "postgres" else 3  # its releases have two
    assert len(re.findall(r"[0-9]+", tag.partition("-")[0])) == numbers
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert service["mem_limit"]
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        assert (DEPLOY / source).exists() if source[0] == "." else source in COMPOSE["volumes"]


def test_redis_forgets_no_claim_and_a_role_has_time_to_drain() -> None:
    command = COMPOSED["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    drain = Settings.model_fields["drain_timeout"].default
    for name in ROLES:
        assert int(COMPOSED[name]["stop_grace_period"].removesuffix("s")) > drain
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = scraped["scrape_configs"]
    assert set(job["dns_sd_configs"][0]["names"]) == {"api", *ROLES}


def test_the_image_has_every_package_and_its_ports_can_be_reached_as_a_numbered_user() -> None:
    copies = [rest.split()[:-1] for word, rest in INSTRUCTIONS if word == "COPY"]
    copied = {source for sources in copies if "--from" not in sources[0] for source in sources}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {"pyproject.toml", project["project"]["readme"], *packages} <= copied
    assert all((ROOT / source).exists() for source in copied)
    words = " ".join(rest for word, rest in INSTRUCTIONS if word == "ENV").split()
    environment = dict(word.split("=", 1) for word in words)
    ours = {name.removeprefix(PREFIX) for name in environment if name.startswith(PREFIX)}
    assert {name.lower() for name in ours} <= set(Settings.model_fields)
    assert environment["PROXIMITY_API_HOST"] == environment["PROXIMITY_METRICS_HOST"] == "0.0.0.0"
    stage = dict(INSTRUCTIONS)  # what the last stage says
    assert all(int(number) > 0 for number in stage["USER"].split(":"))
    port = environment["PROXIMITY_METRICS_PORT"]
    assert port == environment["PROXIMITY_API_METRICS_PORT"]
    assert f":{port}/healthz" in stage["HEALTHCHECK"]
    assert stage["EXPOSE"].split() == [str(Settings.model_fields["api_port"].default), port]
