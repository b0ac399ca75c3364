"""What can be known of the compose file without a Docker engine."""

import re
import shlex

import pytest
import yaml

from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from tests.deploy.files import DEPLOY, ROOT, default, document, of_ours, parse, services

ROLES = ("trigger", "connector", "recorder")


@pytest.mark.parametrize("name", of_ours())
def test_settings_and_commands_are_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in of_ours()[name]["environment"].items():
        monkeypatch.setenv(variable, default(value))
    assert load_settings().kafka_bootstrap_servers == "kafka:9092"
    command = of_ours()[name]["command"]
    if name != "example":
        parse(command)
        return
    for line in command[0].split("&&"):
        program, *words = shlex.split(line)
        assert program == "proximity"
        parse([word.replace("/examples/", f"{ROOT}/docs/examples/") for word in words])


@pytest.mark.parametrize("name", services())
def test_a_service_is_exact_and_bounded_and_stays_on_loopback(name: str) -> None:
    service = services()[name]
    _, _, tag = service["image"].partition(":")
    numbers = 2 if name == "postgres" else 3  # its releases have two
    assert len(re.findall(r"[0-9]+", tag.partition("-")[0])) == numbers
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert service["mem_limit"]
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        known = (DEPLOY / source).exists() if source[0] == "." else source in document()["volumes"]
        assert known, volume


def test_redis_forgets_no_claim() -> None:
    command = services()["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_a_role_has_time_to_drain_and_is_scraped() -> None:
    drain = Settings.model_fields["drain_timeout"].default
    for name in ROLES:
        assert int(services()[name]["stop_grace_period"].removesuffix("s")) > drain
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = scraped["scrape_configs"]
    assert set(job["dns_sd_configs"][0]["names"]) == {"api", *ROLES}
