"""The command `proximity`.

Its exit status is 0, 1 (failed), 2 (usage) or 130 (Ctrl-C); an error is one line on stderr.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer import Option
from typer.core import TyperGroup

from catalog.plain_text import for_terminal
from engine import engine_version
from engine.cli.command import COMMANDS, ENV_FILE, INTERRUPTED, commands, kafka_complaints

_ENV_FILE = "--env-file"


class CommandGroup(TyperGroup):
    """The commands, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names, in the order of the list."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of that name, or None."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            importlib.import_module(f"engine.cli.{COMMANDS[cmd_name][0]}")
            self.commands.update(typer.main.get_group(commands).commands)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the list of the commands into the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    name="proximity",
    cls=CommandGroup,
    help="Beacon detections in, campaign notifications out.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"proximity {engine_version()}")
        raise typer.Exit


@app.callback()
def _proximity(
    _env_file: Annotated[
        Path | None,  # `run` has taken it: it may also follow the command's name
        Option(_ENV_FILE, help="Settings as KEY=value lines; the environment has precedence."),
    ] = None,
    _show: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


command_group = cast("CommandGroup", typer.main.get_command(app))


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit status."""
    env_file, words = _without_env_file(arguments)
    ENV_FILE.set(env_file)
    with kafka_complaints() as complaints:
        try:
            status = int(command_group.main(words, "proximity", standalone_mode=False) or 0)
            line = "interrupted" if status == INTERRUPTED else ""  # typer says nothing itself
        except (Exception, KeyboardInterrupt) as error:
            from engine.cli.servers import failure

            status, line = failure(error, complaints)
    if line.startswith("Usage:"):  # no command was given
        typer.echo(line)
    elif line:
        typer.echo(f"proximity: {for_terminal(' '.join(line.split()))}", err=True)
    return status


def _without_env_file(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    words = list(arguments)
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == _ENV_FILE and (equals or at + 1 < len(words)):
            return Path(value or words[at + 1]), words[:at] + words[at + (1 if equals else 2) :]
    return None, words
