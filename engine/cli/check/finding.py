"""One check and its result."""

from enum import StrEnum
from typing import NamedTuple

_SKEW_NOTED = 1.0
_SKEW_TOO_LARGE = 10.0


class State(StrEnum):
    """The result of one check; BAD makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Finding(NamedTuple):
    """The result of one check.

    `part` is the server or the area, `what` the subject of the check; `told` is the result, with
    advice if something is wrong.
    """

    part: str
    what: str
    state: State
    told: str


def ok(part: str, what: str, told: str) -> Finding:
    """The subject is as it should be."""
    return Finding(part, what, State.OK, told)


def warning(part: str, what: str, told: str) -> Finding:
    """The subject works, but needs attention."""
    return Finding(part, what, State.WARNING, told)


def bad(part: str, what: str, told: str) -> Finding:
    """The subject prevents the engine from working."""
    return Finding(part, what, State.BAD, told)


def check_clock(part: str, theirs: float, before: float, after: float) -> Finding:
    """Compares a server's clock with this machine's.

    `theirs` was read between `before` and `after` (epoch seconds).
    """
    skew = theirs - min(max(theirs, before), after)
    if abs(skew) <= _SKEW_NOTED:
        return ok(part, "clock", "as this machine's")
    direction = "ahead of" if skew > 0 else "behind"
    result = bad if abs(skew) > _SKEW_TOO_LARGE else warning
    return result(part, "clock", f"{abs(skew):.1f} s {direction} this machine's: see to NTP")
