"""A user with real servers, and the fixtures of the interface's tests on SQLite."""

import json
from typing import Any

import pytest

from tests.api.conftest import database, processes, served
from tests.servers.proximity import Command, Rig

SECRET_KEY = "the passphrase of nobody else"


class User:
    """A user in the project's directory, who runs commands with one settings file."""

    def __init__(self, rig: Rig, settings: dict[str, str]) -> None:
        self.rig = rig
        lines = (f"export PROXIMITY_{name}={value}\n" for name, value in settings.items())
        self._options = "--env-file", rig.write("proximity.env", "".join(lines).encode())

    def __call__(self, *words: str, given: str = "") -> str:
        """Run a command to its end; what it printed, errors last."""
        done = self.rig(*self._options, *words, given=given.encode())
        assert done.returncode == 0, (words, done.output)
        return done.output

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """The output of a command with --json."""
        lines = self(*words, "--json").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def start(self, *words: str) -> Command:
        """Start a command that keeps running."""
        return self.rig.start(*words, *self._options)


@pytest.fixture
def user(
    rig: Rig, kafka_bootstrap: str, redis_url: str, postgres_url: str, topic_prefix: str
) -> User:
    """A user with real servers, and with topics and groups of its own."""
    rig.settings = {}
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
        "DATABASE_URL": postgres_url,
        "REDIS_URL": redis_url,
        "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
        "SECRET_KEY": f"'{SECRET_KEY}'",
        **dict.fromkeys(("TOPIC_PREFIX", "GROUP_PREFIX"), topic_prefix),
    }
    return User(rig, settings)


__all__ = ["database", "database_url", "processes", "served", "user"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url
