"""The tools of a user: the command, and a file of settings for servers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.process import free_ports
from tests.servers.product_process import ROOT, run_product
from tests.system.rig import Command, Rig

__all__ = ["ROOT", "SECRET_KEY", "User", "user"]

SECRET_KEY = "the passphrase of nobody else"


class User:
    """A user in the project's directory, who runs commands with one settings file."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.rig = Rig(directory, {})
        self._env_file = directory / "proximity.env"
        ports = {"METRICS_HOST": "127.0.0.1", "METRICS_PORT": str(free_ports())}
        ports |= {"API_PORT": str(free_ports()), "API_METRICS_PORT": str(free_ports())}
        settings |= ports | {"SECRET_KEY": f"'{SECRET_KEY}'"}
        lines = (f"export PROXIMITY_{name}={value}\n" for name, value in settings.items())
        self._env_file.write_text("".join(lines))

    def __call__(self, *words: str, given: str = "") -> str:
        """Run a command to its end; what it printed, errors last."""
        done = run_product(
            ["--env-file", str(self._env_file), *words],
            environment={"PATH": "/usr/bin:/bin"},
            given=given.encode(),
            deadline=200.0,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """The output of a command with --json."""
        lines = self(*words, "--json").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def start(self, *words: str) -> Command:
        """Start a command that keeps running, with its own ports."""
        return self.rig.start(*words, "--env-file", str(self._env_file))

    async def serve(self) -> str:
        """The interface, ready; its address without /v2."""
        port = free_ports()
        ports = {"API_PORT": str(port + 1), "API_METRICS_PORT": str(port)}
        command = self.rig.start("api", "--env-file", str(self._env_file), **ports)
        command.port = port
        await command.until_ready()
        return f"http://127.0.0.1:{port + 1}"


@pytest.fixture
def user(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str, postgres_url: str, topic_prefix: str
) -> Iterator[User]:
    """A user with real servers, and with topics and groups of its own."""
    servers = {"KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap, "DATABASE_URL": postgres_url}
    prefixes = dict.fromkeys(("TOPIC_PREFIX", "GROUP_PREFIX"), topic_prefix)
    networks = {"CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8", "REDIS_URL": redis_url}
    made = User(tmp_path, **servers, **prefixes, **networks)
    yield made
    made.rig.close()
