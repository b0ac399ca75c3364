"""The folder deploy, its compose file, and the programs that check them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from engine.cli import application as cli
from tests.servers.missing import skipping
from tests.servers.process import find_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def services() -> dict[str, dict[str, Any]]:
    """The services by name, anchors resolved."""
    found: dict[str, dict[str, Any]] = document()["services"]
    return found


def document() -> dict[str, Any]:
    """The whole file."""
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return read


def of_ours() -> dict[str, dict[str, Any]]:
    """The services that run this project's image."""
    return {name: service for name, service in services().items() if "build" in service}


def default(value: str) -> str:
    """The value with each `${NAME:-default}` replaced by its default, as compose does."""
    before, opening, rest = value.partition("${")
    if not opening:
        return value
    expression, _, after = rest.partition("}")
    return before + expression.partition(":-")[2] + default(after)


def parse(words: Sequence[str]) -> None:
    """Parsing refuses an unknown command, option or role; nothing runs."""
    group: Any = cli.command_group().load()
    while hasattr(group, "commands"):
        group, words = group.commands[words[0]], words[1:]
    group.make_context(group.name, list(words))


def promtool(*arguments: object) -> None:
    """Run it; it must be content. Skips where it is absent, unless servers are required."""
    with skipping("Prometheus", instead="PATH"):
        program = find_program("promtool", package="prometheus")
    subprocess.run([program, *map(str, arguments)], check=True, timeout=100)
