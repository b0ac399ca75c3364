"""Help is whole at 80 columns, for every command there is; the shell completes their names."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer

from engine.cli import application as cli

WIDTH = 80


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*words, name))


def every_command() -> list[tuple[str, ...]]:
    if not cli.app.registered_commands:
        cli._register()
    return list(commands(typer.main.get_command(cli.app)))


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_help_is_not_cut_at_80_columns(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    assert cli.run([*words, "--help"]) == 0
    usage, *lines = capsys.readouterr().out.splitlines()
    assert usage.startswith("Usage: proximity")
    assert [line for line in lines if len(line) > WIDTH or line.rstrip().endswith("...")] == []
    # Nor is a word cut at its hyphen.
    assert [line for line in lines if re.search(r"\w-$", line)] == []


def example_lines() -> Iterator[str]:
    """The examples in the help of all commands, as a shell reads them."""
    for words in every_command():
        if epilog := found(words).epilog:
            yield from epilog.replace("\\\n", "").splitlines()[2:]


def found(words: Sequence[str]) -> Any:
    command: Any = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]
    return command


@pytest.mark.parametrize("line", list(example_lines()), ids=str.strip)
def test_the_examples_of_the_help_are_understood(line: str) -> None:
    program, *words = shlex.split(line.partition("<")[0])
    assert program == "proximity"
    command: Any = typer.main.get_command(cli.app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    # Wrong options and missing arguments raise; the command itself is not run.
    assert command.make_context(command.name, words).params


def test_every_command_of_the_list_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2]
    names = {words[0] for words in every_command() if words}
    for name in names:
        (line,) = [line for line in listed.splitlines() if line.startswith(f"  {name} ")]
        assert line.split()[1:], name


def test_a_group_without_a_command_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in every_command():
        if getattr(found(words), "commands", {}):
            assert cli.run(words) in (0, cli.USAGE)
            assert "\nCommands:\n" in capsys.readouterr().out, words


def test_the_shell_completes_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_PROXIMITY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "proximity notif")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        cli.run([])
    assert capsys.readouterr().out.split() == ["notifications"]
