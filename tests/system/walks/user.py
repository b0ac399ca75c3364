"""The tools of each of the three users: the command, HTTP, and a file of settings for servers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.process import free_ports
from tests.servers.product_process import ROOT, run_product
from tests.system.rig import Command, Rig

__all__ = ["ROOT", "SECRET_KEY", "User", "user"]

SECRET_KEY = "the passphrase of nobody else"
_DEADLINE = 90.0


class User:
    """A user in the project's directory, who runs commands with one settings file."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.env_file = directory / "proximity.env"
        self.ports = free_ports()
        self._rig = Rig(directory, {})
        self.settings = {
            "SECRET_KEY": f"'{SECRET_KEY}'",
            "METRICS_HOST": "127.0.0.1",
            "METRICS_PORT": str(self.ports),
            "API_PORT": "0",
            "API_METRICS_PORT": "0",
            "KAFKA_SESSION_TIMEOUT": "6",
        } | settings
        lines = (f"export PROXIMITY_{name}={value}\n" for name, value in self.settings.items())
        self.env_file.write_text("".join(lines))

    def __call__(self, *words: str, status: int = 0, given: str = "", **changed: str) -> str:
        """Run a command to its end; what it printed, errors last. `changed` settings come from the
        environment.
        """
        done = run_product(
            ["--env-file", str(self.env_file), *words],
            environment={"PATH": "/usr/bin:/bin"}
            | {f"PROXIMITY_{n}": v for n, v in changed.items()},
            given=given.encode(),
            deadline=_DEADLINE,
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def rows(self, *words: str, status: int = 0) -> list[dict[str, Any]]:
        """The output of a command with --json."""
        lines = self(*words, "--json", status=status).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def write(self, name: str, content: str) -> str:
        """Write a file. Returns its path."""
        path = self.directory / name
        path.write_text(content)
        return str(path)

    def start(self, *words: str) -> Command:
        """Start a command that keeps running, with its own ports."""
        return self._rig.start(*words, "--env-file", str(self.env_file))

    async def serve(self) -> str:
        """The interface, ready; its address without /v2."""
        metrics = free_ports()
        ports = {"API_PORT": str(metrics + 1), "API_METRICS_PORT": str(metrics)}
        command = self._rig.start("api", "--env-file", str(self.env_file), **ports)
        command.port = metrics
        await command.until_ready()
        return f"http://127.0.0.1:{metrics + 1}"

    def close(self) -> None:
        """Stop all running commands."""
        self._rig.close()


@contextmanager
def user(
    directory: Path, prefix: str, kafka: str, redis: str, sql: str, **more: str
) -> Iterator[User]:
    """A user with these servers, and with topics and groups of its own."""
    servers = {"KAFKA_BOOTSTRAP_SERVERS": kafka, "REDIS_URL": redis, "DATABASE_URL": sql}
    made = User(directory, TOPIC_PREFIX=prefix, GROUP_PREFIX=prefix, **servers, **more)
    try:
        yield made
    finally:
        made.close()
