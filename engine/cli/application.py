"""The command `proximity`.

Its exit status is 0, 1 (failed), 2 (usage) or 130 (Ctrl-C); an error is one line on stderr.
"""

import asyncio
import importlib
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from catalog.plain_text import for_terminal
from engine.cli.command import INTERRUPTED, Invocation, invocation_of, kafka_complaints
from engine.process.metrics import engine_version

_ENV_FILE = "--env-file"
# Each command's module, and the line that lists it. The module is imported when it is called.
_COMMANDS = {
    "run": "Run one role, or all, until SIGTERM or SIGINT; then drain and exit with 0.",
    "api": "Serve the management interface until SIGTERM or SIGINT.",
    "migrate": "Create or upgrade the tables in DATABASE_URL.",
    "account": "Accounts of the management interface, and their permissions.",
    "catalog": "The catalog: companies, venues, beacons, campaigns.",
    "index": "The index in Redis, from which triggers read the catalog.",
    "connector": "Customers' web services, which provide the content of connector campaigns.",
    "publish": "Publish detections from FILE, keyed by the device's udid.",
    "replay": "Decide recorded detections again, and show what would have been sent.",
    "notifications": "Notifications that the engine has published for push senders.",
    "dead-letters": "Records that could not be processed.",
    "demo": "Send real beacon readings from a library through Kafka, Redis and the engine.",
    "statistics": "Show detections and notifications by day, venue, place and campaign.",
    "verify": "Count the topics again, as far as SQL has recorded them, and compare.",
    "audit": "Show the latest changes made through the interface, the newest first.",
    "forget": "Delete all data of the device UDID of COMPANY from SQL and Redis.",
    "explain": "Explain why a detection would fire each campaign of a place, or why not.",
    "tail": "Show the decisions of running triggers as they happen, until Ctrl-C.",
    "device": "Show the last decisions on the device UDID of COMPANY, the newest first.",
    "check": "Check everything that a process needs at its start, and change nothing.",
    "settings": "Print every setting with its value, default, source and meaning.",
}
# The commands whose module has another name.
_MODULES = {
    "api": "run",
    "migrate": "run",
    "index": "catalog",
    "forget": "device",
    "tail": "device",
    "audit": "account",
}


class CommandGroup(TyperGroup):
    """The commands, each imported when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names, in the order of the list."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of that name, or None."""
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            name = _MODULES.get(cmd_name, cmd_name.replace("-", "_"))
            module = importlib.import_module(f"engine.cli.{name}")
            self.commands[cmd_name] = typer.main.get_group(module.app).commands[cmd_name]
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def load(self) -> "CommandGroup":
        """Import every command."""
        for name in _COMMANDS:
            self.get_command(None, name)
        return self


app = typer.Typer(
    name="proximity",
    cls=CommandGroup,
    help="Beacon detections in, campaign notifications out.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"proximity {engine_version()}")
        raise typer.Exit


@app.callback()
def _proximity(
    context: typer.Context,
    env_file: Annotated[
        Path | None,
        Option(_ENV_FILE, help="Settings as KEY=value lines; the environment has precedence."),
    ] = None,
    _show: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    invocation_of(context).env_file = env_file


@lru_cache(maxsize=1)
def command_group() -> CommandGroup:
    """The command line."""
    group = typer.main.get_command(app)
    assert isinstance(group, CommandGroup)  # noqa: S101  # as `cls` says
    return group


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit status."""
    invocation = Invocation()
    with kafka_complaints() as complaints:
        try:
            status = command_group().main(
                args=_env_file_first(arguments),
                prog_name="proximity",
                standalone_mode=False,
                obj=invocation,
            )
        except asyncio.CancelledError:
            status, line = INTERRUPTED, "interrupted"
        except (Exception, KeyboardInterrupt) as error:
            from engine.cli.servers import failure

            status, line = failure(error, invocation, complaints)
        else:
            return int(status or 0)
    if line.startswith("Usage:"):  # no command was given
        typer.echo(line)
    elif line:
        typer.echo(f"proximity: {for_terminal(' '.join(line.split()))}", err=True)
    return status


def _env_file_first(arguments: Sequence[str]) -> list[str]:
    """Move --env-file to the front, because it may be before or after the command's name."""
    front, rest = [], []
    words = iter(arguments)
    for word in words:
        if word == _ENV_FILE:
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word.startswith(f"{_ENV_FILE}="):
            front.append(word)
        else:
            rest.append(word)
    return front + rest
