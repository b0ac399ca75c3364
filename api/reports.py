"""What the engine reports for the interface to show. Light: the roles import it."""

from datetime import timedelta
from typing import Literal, NamedTuple

import msgspec

from rules.model import Zone

# Checks of /readyz.
AwaitedCheck = Literal[
    "kafka", "redis", "redis_writes", "sql", "partitions_assigned", "index_built", "clock"
]
ROLES = ("trigger", "connector", "recorder")


class RoleReport(NamedTuple):
    """The report of a process on one of its roles, `age` seconds ago.

    `behind` is in seconds, None while unknown. `waits_for` names failing checks of /readyz.
    """

    role: str
    age: float
    behind: float | None
    waits_for: tuple[str, ...]


class LiveOutcome(NamedTuple):
    """A campaign, and the reason of its outcome."""

    id: int
    name: str
    outcome: str


class LiveDecision(msgspec.Struct, frozen=True, array_like=True):
    """A decision without the device; times in epoch seconds.

    `beacon` is the name of the place, and `kind` what it is: "position" if it is in no geofence.
    `company` is None if the place is unknown. `left_out` counts decisions before it that were not
    passed on, because there were too many.
    """

    detected_at: float
    decided_at: float
    company: int | None
    venue: str
    beacon: str
    zone: Zone
    reason: str
    campaigns: list[LiveOutcome]
    left_out: int
    kind: str = "beacon"


class LiveDecisions(NamedTuple):
    """The decisions after a position, and the position for the next request."""

    after: str
    decisions: list[LiveDecision]


class TopicRetention(NamedTuple):
    """Whether topics delete messages by age, unknown if no broker reports it; the longest age."""

    kind: Literal["bounded", "unbounded", "unknown"]
    longest: timedelta | None = None


class HeldData(NamedTuple):
    """What is stored of one device: keys and fields in Redis, messages in Kafka, rows in SQL."""

    keys: int
    kafka: TopicRetention
    devices: int
    detections: int
    authentications: int
    presences: int
