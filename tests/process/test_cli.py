"""Exit statuses and one line of error."""

import gc
from pathlib import Path

import pytest

from engine.cli.__main__ import main
from engine.cli.application import run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nonsense"], "nonsense"),
        (["run", "--role", "painter"], "painter"),
        (["run", "--workers", "0"], "workers"),
        (["run", "--embedded", "--workers", "2"], "one worker"),
        (["run", "--write-env", "x"], "--embedded"),
        (["publish"], "Missing argument"),
        (["--env-file", "/no/such/file", "settings"], "no such file"),
        (["settings", "--env-file=/no/such/file"], "no such file"),
    ],
)
def test_usage(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("proximity: ")
    assert error.count("\n") == 1
    assert expected in error


def test_a_command_that_fails_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    # Port 1 of loopback: nobody listens there.
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", "postgresql://user:secret@127.0.0.1:1/name")
    assert run(["migrate"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("proximity: cannot migrate the database: ")
    assert "PROXIMITY_DATABASE_URL is postgresql://user:********@127.0.0.1:1/name" in error
    assert "secret" not in error
    assert error.count("\n") == 1


def test_publish_writes_no_other_format(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PROXIMITY_DETECTION_TOPICS", "proximity.detections=minew")
    file = tmp_path / "detections.jsonl"
    file.write_text("{}")
    assert run(["publish", str(file)]) == 1
    error = capsys.readouterr().err
    assert "proximity.detections=minew: publish writes the format own only" in error


def test_no_arguments_show_the_commands(capsys: pytest.CaptureFixture[str]):
    assert run([]) == 2
    shown = capsys.readouterr().out
    for command in ("run", "migrate", "catalog", "publish", "dead-letters", "demo", "settings"):
        assert command in shown


def test_ctrl_c_before_the_command_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A machine that is busy imports for seconds."""

    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        gc.enable()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "proximity: interrupted\n"
