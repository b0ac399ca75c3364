"""The folder deploy, and what checks it."""

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine.cli import application as cli
from tests.servers.missing import skipping
from tests.servers.process import find_program


@pytest.fixture
def parse() -> Callable[[Sequence[str]], None]:
    """Parsing refuses an unknown command, option or role; nothing runs."""

    def parse(words: Sequence[str]) -> None:
        group: Any = cli.command_group().load()
        while hasattr(group, "commands"):
            group, words = group.commands[words[0]], words[1:]
        group.make_context(group.name, list(words))

    return parse


@pytest.fixture
def promtool() -> Callable[..., None]:
    """Runs it; it must be content. Skips where it is absent, unless servers are required."""
    with skipping("Prometheus", instead="PATH"):
        program = find_program("promtool", package="prometheus")

    def run(*arguments: object) -> None:
        subprocess.run([program, *map(str, arguments)], check=True, timeout=300)

    return run
