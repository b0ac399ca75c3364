"""The objects that the operations use, built once with the application."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime

from api.reports import LiveDecisions, RoleReport
from api.sessions import Sessions
from catalog.database import Database
from catalog.erasure import DeviceData
from catalog.limits import DEFAULT_LIMITS, CatalogLimits
from catalog.secrets import Cipher
from connectors.model import CallHistory, Trial
from rules.explanation import DeviceHistory
from rules.model import DayFigures, StoredDecision


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a request.

    Bytes of a body and seconds until it has arrived; seconds until an answer begins or goes on, and
    seconds of the whole answer.
    """

    body_bytes: int = 1024 * 1024
    body_seconds: float = 15.0
    answer_seconds: float = 30.0
    whole_answer_seconds: float = 600.0


@dataclass(frozen=True, kw_only=True)
class Services:
    """The objects that the operations use, open while the application serves.

    - `nudge` is called after each commit, so that the index in Redis is updated at once.
    - `check_url` raises connectors.errors.EgressError for a url that no connector may call.
    - Without `cipher` connectors can be neither stored nor shown.
    - `try_connector` makes one call to a company's service, or raises NothingToTryError.
    - `live_decisions` is None while too many companies are watched.
    - `recent_detections` counts those of the last minutes by beacon of a venue.
    - `held_data` counts the stored data of a company's device, `forget_device` deletes it.
    - `max_detection_age` is in seconds.

    What reads Redis raises its errors.
    """

    database: Database
    sessions: Sessions
    cipher: Cipher | None
    nudge: Callable[[], None]
    check_url: Callable[[str], Awaitable[None]]
    try_connector: Callable[[int], Awaitable[Trial]]
    past_calls: Callable[[int], Awaitable[CallHistory]]
    device_history: Callable[[int, str, Collection[int]], Awaitable[DeviceHistory]]
    recent_decisions: Callable[[int, str], Awaitable[list[StoredDecision]]]
    live_decisions: Callable[[int, str | None], Awaitable[LiveDecisions | None]]
    role_reports: Callable[[], Awaitable[list[RoleReport]]]
    recent_detections: Callable[[int], Awaitable[dict[int, int]]]
    held_data: Callable[[int, str], Awaitable[DeviceData]]
    forget_device: Callable[[int, str], Awaitable[DeviceData]]
    day_figures: Callable[[int, date, date], Awaitable[dict[date, DayFigures]]]
    max_detection_age: float
    clock: Callable[[], datetime]
    limits: Limits = Limits()
    catalog_limits: CatalogLimits = DEFAULT_LIMITS
    trials: set[int] = field(default_factory=set)  # companies whose connector is being tested
