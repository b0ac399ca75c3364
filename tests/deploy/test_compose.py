"""What can be known of the compose file and of the Dockerfile without a Docker engine."""

import re
import shlex
import tomllib
from typing import Any

import pytest
import yaml

from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import load_settings
from tests.cli.given import parse
from tests.servers.proximity import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ROLES = ("trigger", "connector", "recorder")
TEXT = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
INSTRUCTIONS = [line.split(maxsplit=1) for line in TEXT.splitlines() if line.strip(" #")]


def default(value: str) -> str:
    """The value with each `${NAME:-default}` replaced by its default, as compose does."""
    while "${" in value:
        value = re.sub(r"\$\{\w+(?::-([^{}]*))?\}", r"\1", value)
    return value


@pytest.mark.parametrize("name", [name for name, each in SERVICES.items() if "build" in each])
def test_settings_and_commands_are_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = SERVICES[name]
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


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_exact_and_bounded_and_stays_on_loopback(name: str) -> None:
    service = SERVICES[name]
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
    command = SERVICES["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    drain = Settings.model_fields["drain_timeout"].default
    for name in ROLES:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > drain
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
