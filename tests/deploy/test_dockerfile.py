"""What can be known of the Dockerfile without a Docker engine."""

import tomllib

from engine.process.settings import PREFIX, Settings
from tests.deploy.files import DEPLOY, ROOT

TEXT = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
INSTRUCTIONS = [
    (word, rest.strip())
    for word, _, rest in (line.partition(" ") for line in TEXT.splitlines())
    if word and not word.startswith("#")
]
ENVIRONMENT = dict(
    word.split("=", 1) for name, rest in INSTRUCTIONS if name == "ENV" for word in rest.split()
)
COPIED = {
    source
    for word, rest in INSTRUCTIONS
    if word == "COPY" and not rest.startswith("--from")
    for source in rest.split()[:-1]
}


def test_its_ports_can_be_reached_and_its_variables_are_settings() -> None:
    ours = {k: v for k, v in ENVIRONMENT.items() if k.startswith(PREFIX)}
    assert ours["PROXIMITY_API_HOST"] == ours["PROXIMITY_METRICS_HOST"] == "0.0.0.0"
    assert {name.removeprefix(PREFIX).lower() for name in ours} <= set(Settings.model_fields)


def test_every_package_of_the_wheel_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = [project["project"]["readme"], *project["project"]["license-files"]]
    assert {"pyproject.toml", *packages, *files} <= COPIED
    assert all((ROOT / source).exists() for source in COPIED)


def test_it_runs_as_a_numbered_user_and_its_health_is_checked() -> None:
    stage = dict(INSTRUCTIONS)  # what the last stage says
    assert all(int(number) > 0 for number in stage["USER"].split(":"))
    assert stage["ENTRYPOINT"] == '["proximity"]'
    port = ENVIRONMENT["PROXIMITY_METRICS_PORT"]
    assert port == ENVIRONMENT["PROXIMITY_API_METRICS_PORT"]
    assert f":{port}/" in stage["HEALTHCHECK"]
    assert "/healthz" in stage["HEALTHCHECK"]
    assert stage["EXPOSE"].split() == [str(Settings.model_fields["api_port"].default), port]
