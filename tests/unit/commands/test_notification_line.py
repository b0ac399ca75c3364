"""A notification on one line, whatever it says."""

import json

import msgspec
import pytest

from engine.cli.notifications.line import compact, one_line, read_notification
from engine.kafka.messages import Notification
from tests.integration.commands.test_notifications_tail import notification

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"


def read(**fields: str) -> Notification:
    found = read_notification(notification("Welcome", "a", **fields))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "at", ["nonsense", "", "0001-01-01T00:00:00+1400", "9999-12-31T23:59:59-1400", ESCAPES]
)
def test_a_time_that_cannot_be_shown(at: str) -> None:
    """It ended the command with a traceback."""
    assert one_line(read(triggered_at=at)) == "--:--:--  Welcome -> a: Hello. Come in [template]"


def test_a_time_that_can() -> None:
    assert one_line(read())[2:8:3] == "::"


def test_nothing_in_it_reaches_a_terminal() -> None:
    fields = {"title": ESCAPES, "push": ESCAPES, "format": "html", "html": ESCAPES}
    assert one_line(read(**fields)).isprintable()
    # As JSON may hold it: only the controls below the space must be escaped there.
    raw = msgspec.json.encode(json.loads(notification("Welcome", ESCAPES, **fields)))
    assert "\x9b".encode() in raw
    assert compact(raw).isprintable()
    assert json.loads(compact(raw)) == json.loads(raw)
