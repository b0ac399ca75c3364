"""Repeated messages of libraries are logged once in a while."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from engine.process.logs import _QUIET, configure_logs
from engine.process.settings_sources import load_settings

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
_COLOURS = ("\x1b[0m", "\x1b[1m", "\x1b[2m", *(f"\x1b[{number}m" for number in range(30, 38)))


def fail(why: str, variable: str) -> None:
    """With a variable that a traceback may show."""
    if variable:
        raise ValueError(why)


@pytest.fixture
def configured() -> Iterator[None]:
    """Logs as a command has them; those of the tests are restored."""
    root, noisy = logging.getLogger(), [logging.getLogger(name) for name in _QUIET]
    before = root.handlers[:], root.level, [each.level for each in noisy]
    yield
    root.handlers[:], root.level = before[0], before[1]
    for logger, level in zip(noisy, before[2], strict=True):
        logger.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_log_line_does_nothing_to_a_terminal_and_shows_no_variables(
    configured: None, capsys: pytest.CaptureFixture[str], log_format: str
):
    """The log contains paths, names and errors of strangers, and is read on a terminal."""
    configure_logs(load_settings(None, log_format=log_format))
    log = structlog.get_logger("engine.tested")
    log.warning(f"said {ESCAPES}", path=f"/{ESCAPES}\nforged", listed=[ESCAPES])
    logging.getLogger("uvicorn.tested").error("from a library: %s", ESCAPES)
    secret = "a passphrase"[::-1]
    try:
        fail(f"why {ESCAPES}", secret)
    except ValueError:
        log.exception("failed")
    printed = capsys.readouterr().err
    for colour in _COLOURS:
        printed = printed.replace(colour, "")
    assert all(each.isprintable() or each == "\n" for each in printed)
    assert "owned" in printed
    assert "Traceback" in printed
    assert secret not in printed
    assert not [line for line in printed.splitlines() if line.startswith("forged")]
