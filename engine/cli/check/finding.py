"""One thing that was looked at."""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Only what is bad makes the check fail."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Finding(NamedTuple):
    """`part` is the server or the area, `told` what was found and, if need be, what to do."""

    part: str
    what: str
    state: State
    told: str


def ok(part: str, what: str, told: str) -> Finding:
    """As it should be."""
    return Finding(part, what, State.OK, told)


def warning(part: str, what: str, told: str) -> Finding:
    """It works, and somebody should know."""
    return Finding(part, what, State.WARNING, told)


def bad(part: str, what: str, told: str) -> Finding:
    """It keeps the engine from its work."""
    return Finding(part, what, State.BAD, told)
