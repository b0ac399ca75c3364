"""Help, usage, and output of the commands, whichever command it is."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.errors import InvalidSessionTimeoutError

from engine.cli import application as cli
from engine.cli.servers import line_of
from tests.cli.given import all_commands, parse


def epilogs(command: Any) -> Iterator[str]:
    yield command.epilog or ""
    for each in getattr(command, "commands", {}).values():
        yield from epilogs(each)


def example_lines() -> Iterator[str]:
    """The examples in the help of all commands, as a shell reads them."""
    for epilog in epilogs(all_commands()):
        yield from epilog.replace("\\\n", "").splitlines()[2:]


@pytest.mark.parametrize("line", list(example_lines()), ids=str.strip)
def test_the_examples_of_the_help_are_understood(line: str) -> None:
    program, *words = shlex.split(line.partition("<")[0])
    assert program == "proximity"
    assert parse(words).params


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["publish", "a.csv", "--rate", "5", "--speed", "2"], "goes without --rate"),
        (["dead-letters", "replay", "--reason", "x"], "is not one of malformed_json"),
        (["catalog", "load"], "FILE"),
        (["nonsense"], "nonsense"),
        (["run", "--embedded", "--workers", "2"], "one worker"),
        (["run", "--write-env", "x"], "--embedded"),
        (["--env-file", "/no/such/file", "settings"], "no such file"),
        (["settings", "--env-file=/no/such/file"], "no such file"),
        (["replay", "x.csv", "--without-sql"], "needs --catalog"),
        (["replay", "x.csv", "--warm-up", "1 day"], "goes with --from"),
        (["replay", "x.csv", "--from", "yesterday"], "2026-11-20T10:00:00+0100"),
        (["replay", "x.csv", "--from", "1795443000000", "--to", "1795443000000"], "--to: is not"),
        (["replay", "x.csv", "--shift", "soon"], "not a delay"),
        (["replay", "x.csv", "--visits", "exit=0"], "accepted: exit=1"),
        (["replay", "x.csv", "--visits", "exit=9", "--compare", "y"], "goes without --compare"),
    ],
)
def test_usage(arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    output, error = capsys.readouterr()
    assert (output, error.count("\n")) == ("", 1)
    assert fault.lower() in error.lower()


def test_a_wrong_setting_stops_the_demo_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXIMITY_NOPE", "1")
    assert cli.run(["demo"]) == 2
    assert "PROXIMITY_NOPE" in capsys.readouterr().err


def test_changed_settings_have_units(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXIMITY_MAX_DETECTION_AGE", "10m")
    monkeypatch.setenv("PROXIMITY_TOPIC_PREFIX", "mine.")
    monkeypatch.setenv("PROXIMITY_API_PORT", "8000")  # its default
    assert cli.run(["settings", "--changed"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("    ")]
    assert lines == [
        "PROXIMITY_TOPIC_PREFIX=mine.  [environment; default: proximity.]",
        "PROXIMITY_MAX_DETECTION_AGE=600.0 s  [environment; default: 300.0]",
    ]


def test_a_role_imports_only_its_own_libraries() -> None:
    """Alembic, the connector's HTTP client and FastAPI take 10 MiB each."""
    code = (
        "import sys, engine.cli.run, engine.wiring.run, engine.wiring.trigger; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"alembic", "aiohttp", "fastapi"}.isdisjoint(done.stdout.split())


def test_a_command_that_fails_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", "postgresql://user:secret@127.0.0.1:1/name")
    assert cli.run(["migrate"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("proximity: the database refused: ")
    assert "PROXIMITY_DATABASE_URL is postgresql://********@127.0.0.1:1/name" in error
    assert error.count("\n") == 1


def test_a_session_timeout_that_the_brokers_refuse_is_named() -> None:
    assert "PROXIMITY_KAFKA_SESSION_TIMEOUT" in line_of(InvalidSessionTimeoutError(), ())
