"""The states of the service's roles, without details of its installation."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from pydantic import Field

from api.answers import Answer, Record

ROLES = ("trigger", "connector", "recorder")
# Checks of /readyz.
AwaitedCheck = Literal[
    "kafka", "redis", "redis_writes", "sql", "partitions_assigned", "index_built", "clock"
]
_CHECKS = get_args(AwaitedCheck)
_ALIVE_SECONDS = 30.0  # a process writes every five
_BEHIND_SECONDS = 5.0  # below it a role is up to date


class RoleReport(NamedTuple):
    """The report of a process on one of its roles, `age` seconds ago.

    `behind` is in seconds, None while unknown. `waits_for` names failing checks of /readyz.
    """

    role: str
    age: float
    behind: float | None
    waits_for: tuple[str, ...]


class RoleStateAnswer(Answer):
    role: Literal["trigger", "connector", "recorder"]
    state: Literal["up_to_date", "behind", "starting", "waiting", "silent"]
    seconds: int | None = Field(
        description="How far the role is behind, or for how long it is silent; null for other "
        "states, and for a role that has never reported."
    )
    waits_for: list[AwaitedCheck] = Field(
        description="What the role waits for; empty for other states."
    )


def role_states(reports: Iterable[RoleReport]) -> list[Record]:
    """One state for each role: the worst of its processes that are alive."""
    by_role: dict[str, list[RoleReport]] = {role: [] for role in ROLES}
    for report in reports:
        by_role.get(report.role, []).append(report)
    return [{"role": role, **_state(found)} for role, found in by_role.items()]


def _state(reports: Sequence[RoleReport]) -> Record:
    alive = [each for each in reports if each.age < _ALIVE_SECONDS]
    if not alive:
        shortest_age = min((each.age for each in reports), default=None)
        return _shown("silent", shortest_age)
    waits_for = {name for each in alive for name in each.waits_for if name in _CHECKS}
    if waits_for:
        return _shown("waiting") | {"waits_for": sorted(waits_for)}
    behind = [each.behind for each in alive if each.behind is not None]
    if len(behind) < len(alive):
        return _shown("starting")
    if max(behind) >= _BEHIND_SECONDS:
        return _shown("behind", max(behind))
    return _shown("up_to_date")


def _shown(state: str, seconds: float | None = None) -> Record:
    return {"state": state, "seconds": None if seconds is None else int(seconds), "waits_for": []}
