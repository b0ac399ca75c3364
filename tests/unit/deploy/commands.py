"""Command lines of deploy files, as `proximity` reads them."""

from collections.abc import Sequence
from typing import Any

import typer

from engine.cli import application as cli


def parse(words: Sequence[str]) -> None:
    """Parsing refuses an unknown command, option or role; nothing runs."""
    cli.run(["--version"])
    group: Any = typer.main.get_command(cli.app)
    while hasattr(group, "commands"):
        group, words = group.commands[words[0]], words[1:]
    group.make_context(group.name, list(words))
