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

    `part` is the server or the area. `result` has advice if something is wrong.
    """

    part: str
    subject: str
    state: State
    result: str

    def as_json(self) -> dict[str, str]:
        """The fields by the names that `--json` prints."""
        return {
            "part": self.part,
            "what": self.subject,
            "state": self.state.value,
            "told": self.result,
        }


def ok(part: str, subject: str, result: str) -> Finding:
    """The subject is as it should be."""
    return Finding(part, subject, State.OK, result)


def warning(part: str, subject: str, result: str) -> Finding:
    """The subject works, but needs attention."""
    return Finding(part, subject, State.WARNING, result)


def bad(part: str, subject: str, result: str) -> Finding:
    """The subject prevents the engine from working."""
    return Finding(part, subject, State.BAD, result)


def check_clock(part: str, theirs: float, before: float, after: float) -> Finding:
    """Compares a server's clock with this machine's.

    `theirs` was read between `before` and `after` (epoch seconds).
    """
    skew = theirs - min(max(theirs, before), after)
    if abs(skew) <= _SKEW_NOTED:
        return ok(part, "clock", "as this machine's")
    direction = "ahead of" if skew > 0 else "behind"
    finding = bad if abs(skew) > _SKEW_TOO_LARGE else warning
    return finding(part, "clock", f"{abs(skew):.1f} s {direction} this machine's: check NTP")
