"""Wrong usage is one line on standard error and status 2, before anything is opened."""

import pytest

from engine.cli import application as cli


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["publish", "a.xyz"], "say --format jsonl or --format csv"),
        (["publish", "a.csv", "--rate", "5", "--speed", "2"], "goes without --rate"),
        (["publish", "a.csv", "--as-is"], "publishes JSON Lines unread"),
        (["publish", "a.jsonl", "--as-is", "--now"], "publishes JSON Lines unread"),
        (["publish", "a.jsonl", "--rate", "0"], "rate"),
        (["publish"], "FILE"),
        (["dead-letters", "replay", "--reason", "x"], "accepted: malformed_json, invalid_field"),
        (["dead-letters", "list", "--limit", "0"], "limit"),
        (["catalog", "load"], "FILE"),
        (["demo", "--seconds", "0"], "seconds"),
    ],
)
def test_usage(arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == cli.USAGE
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert fault.lower() in error.lower()
