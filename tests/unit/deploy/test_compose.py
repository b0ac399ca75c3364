"""What can be known of the compose file without a Docker engine."""

import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import load_settings
from tests.unit.deploy.commands import parse
from tests.unit.deploy.compose import DEPLOY, ROOT, default, document, of_ours, services

_ROLES = ("trigger", "connector", "recorder")
_CONDITIONS = {
    "service_started": None,
    "service_healthy": "healthcheck",
    "service_completed_successfully": None,
}


def _dependencies() -> list[tuple[str, str, str]]:
    return [
        (name, needed, terms["condition"])
        for name, service in services().items()
        for needed, terms in service.get("depends_on", {}).items()
    ]


def test_the_servers_and_the_roles_are_there() -> None:
    assert set(services()) >= {"kafka", "redis", "postgres", "prometheus", "grafana"}
    assert set(of_ours()) == {"migrate", "api", "example", *_ROLES}


@pytest.mark.parametrize(("name", "needed", "condition"), _dependencies())
def test_awaited_conditions_can_be_met(name: str, needed: str, condition: str) -> None:
    target = services()[needed]
    assert condition in _CONDITIONS
    if condition == "service_healthy":
        # Ours have theirs in the image.
        assert "healthcheck" in target or "build" in target
        assert not target.get("healthcheck", {}).get("disable")
    if condition == "service_completed_successfully":
        assert target["restart"] == "no"


@pytest.mark.parametrize("name", of_ours())
def test_every_variable_of_ours_is_a_setting(name: str) -> None:
    known = {f"{PREFIX}{field.upper()}" for field in Settings.model_fields}
    assert set(of_ours()[name]["environment"]) <= known


@pytest.mark.parametrize("name", of_ours())
def test_the_values_are_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in of_ours()[name]["environment"].items():
        monkeypatch.setenv(variable, default(value))
    settings = load_settings()
    assert settings.kafka_bootstrap_servers == "kafka:9092"


@pytest.mark.parametrize("name", sorted(set(of_ours()) - {"example"}))
def test_the_command_is_one_of_proximity(name: str) -> None:
    parse(of_ours()[name]["command"])


def test_the_example_runs_commands_of_proximity() -> None:
    (script,) = of_ours()["example"]["command"]
    for line in script.split("&&"):
        name, *words = shlex.split(line)
        assert name == "proximity"
        parse([word.replace("/examples/", f"{ROOT}/docs/examples/") for word in words])


@pytest.mark.parametrize("name", services())
def test_images_are_exact_and_ports_stay_on_loopback(name: str) -> None:
    service = services()[name]
    _, _, tag = service["image"].partition(":")
    numbers = 2 if name == "postgres" else 3  # its releases have two
    assert len(re.findall(r"[0-9]+", tag.partition("-")[0])) == numbers
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", services())
def test_memory_and_logs_are_bounded(name: str) -> None:
    service = services()[name]
    assert service["mem_limit"]
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}


def test_named_volumes_are_declared_and_files_exist() -> None:
    for service in services().values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists()
            else:
                assert source in document()["volumes"]


def test_redis_forgets_no_claim() -> None:
    command = services()["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


@pytest.mark.parametrize("name", _ROLES)
def test_a_role_has_time_to_drain(name: str) -> None:
    drain = Settings.model_fields["drain_timeout"].default
    assert int(services()[name]["stop_grace_period"].removesuffix("s")) > drain


def test_prometheus_scrapes_whatever_serves_metrics() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())[
        "scrape_configs"
    ]
    (found,) = job["dns_sd_configs"]
    assert set(found["names"]) == {"api", *_ROLES}


def _has_compose() -> bool:
    return (
        shutil.which("docker") is not None
        and subprocess.run(
            ["docker", "compose", "version"], capture_output=True, check=False, timeout=20
        ).returncode
        == 0
    )


@pytest.mark.skipif(not _has_compose(), reason="the docker client has no compose plugin")
def test_compose_itself_accepts_the_file() -> None:
    subprocess.run(
        ["docker", "compose", "-f", DEPLOY / "compose.yaml", "config", "--quiet"],
        check=True,
        timeout=60,
    )
