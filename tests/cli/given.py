"""What commands are given, how they read it, and what `check` finds."""

import json
from collections.abc import Sequence
from typing import Any

from engine.cli import application as cli
from tests.servers.proximity import Command


def all_commands() -> Any:
    """The command line, with every command imported."""
    for name in cli.command_group.list_commands(None):
        cli.command_group.get_command(None, name)
    return cli.command_group


def parse(words: Sequence[str]) -> Any:
    """The context of a command; what is unknown, wrong or missing raises, and nothing runs."""
    command = all_commands()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command.make_context(command.name, list(words))


def detection(udid: str, **more: Any) -> bytes:
    """A detection as a pipeline writes it."""
    fields = {
        "uuid": "b5c4a7e06f0d4c8e9d5a2c1f7a9e4b10",
        "major": 1,
        "minor": 2,
        "rssi": -60,
        "device": {"udid": udid},
    }
    return json.dumps(fields | more).encode()


def findings_of(check: Command) -> dict[str, tuple[str, str]]:
    """The state and the result of each finding of `check --json`."""
    rows = [json.loads(line) for line in check.stdout.splitlines()]
    return {f"{row['part']} {row['what']}": (row["state"], row["told"]) for row in rows}
