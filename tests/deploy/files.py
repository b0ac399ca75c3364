"""The folder deploy, and the programs that check it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.cli import application as cli
from tests.servers.missing import skipping
from tests.servers.process import find_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


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
