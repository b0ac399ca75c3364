"""The command `proximity`.

Its exit status is 0, 1 (failed), 2 (usage) or 130 (Ctrl-C); an error is one line on stderr.
"""

import asyncio
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from catalog.plain_text import for_terminal
from engine.cli.errors import FAILURES, CommandInterruptedError
from engine.cli.invocation import Invocation
from engine.process.errors import SettingsError
from engine.process.metrics import engine_version

USAGE = 2
FAILED = 1
INTERRUPTED = 130  # a shell's status for a program that SIGINT ended
_ENV_FILE = "--env-file"
_COMMANDS = (
    "run",
    "api",
    "migrate",
    "account",
    "catalog",
    "index",
    "connector",
    "publish.command",
    "replay.command",
    "notifications.command",
    "dead_letters.command",
    "demo.command",
    "statistics",
    "verify.command",
    "audit",
    "forget",
    "explain.command",
    "tail",
    "device",
    "check.command",
    "settings",
)

app = typer.Typer(
    name="proximity",
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
        typer.Option(
            _ENV_FILE, help="Settings as KEY=value lines; the environment has precedence."
        ),
    ] = None,
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    context.obj = Invocation(env_file)


def _register() -> None:
    for name in _COMMANDS:
        importlib.import_module(f"engine.cli.{name}").register(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit status."""
    if not app.registered_commands:
        _register()
    command = typer.main.get_command(app)
    _show_full_sentences(command)
    try:
        status = command.main(
            args=_env_file_first(list(arguments)), prog_name="proximity", standalone_mode=False
        )
    except TyperException as error:
        status = error.exit_code
        _print_error(error.format_message())
    except SettingsError as error:
        status = _complain(str(error), USAGE)
    except CommandInterruptedError as error:
        status = _complain(str(error), INTERRUPTED)
    except FAILURES as error:
        status = _complain(str(error), FAILED)
    except (typer.Abort, KeyboardInterrupt, asyncio.CancelledError):
        status = _complain("interrupted", INTERRUPTED)
    return int(status or 0)


def _show_full_sentences(command: Any) -> None:
    """Make lists of commands show the whole first sentence of each command."""
    if command.help and not command.short_help:
        paragraph = " ".join(command.help.partition("\n\n")[0].split())
        command.short_help = paragraph.partition(". ")[0].removesuffix(".") + "."
    for each in getattr(command, "commands", {}).values():
        _show_full_sentences(each)


def _print_error(message: str) -> None:
    """Print an error on one line. Without a command, print the help."""
    if message.startswith("Usage:"):
        typer.echo(message)
    elif message:
        _complain(message.splitlines()[0])


def _complain(message: str, status: int = FAILED) -> int:
    typer.echo(f"proximity: {for_terminal(message)}", err=True)
    return status


def _env_file_first(arguments: list[str]) -> list[str]:
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
