"""The objects that the operations use, built once with the application."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime

from api.records.live import LiveDecisions
from api.records.role import RoleReport
from api.sessions.check import Sessions
from api.sessions.sign_in import SignIn
from api.slots import TrialSlots
from api.venue_counts import VenueCounts
from catalog.database import Database
from catalog.forgetting import DeviceData
from catalog.limits import DEFAULT_LIMITS, CatalogLimits
from catalog.secrets import Cipher
from connectors.reports import CallHistory, Trial
from rules.day_figures import DayFigures
from rules.explanation import HeldClaim
from rules.kept_decision import KeptDecision


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

    `nudge` is called after each commit, so that the index in Redis is updated at once. `check_url`
    raises connectors.errors.EgressError for a url that no connector may call. Without `cipher`
    connectors can be neither stored nor shown. `try_connector` makes one call to a company's
    service, and raises connectors.errors.NothingToTryError. `past_calls` reads the recent calls of
    a company, `newest_claims` a device's claims by campaign, `recent_decisions` the decisions
    about a device, the newest first, and `live_decisions` a company's decisions after a position,
    None while too many companies are watched; `recent_detections` counts those of the last minutes
    by beacon of a venue, `day_figures` has a company's sums of the days from a first to a last one,
    and `role_reports` the reports of processes about their roles. All seven raise the errors of
    Redis. `held_data` counts the stored data of a company's device, and `forget_device` deletes it;
    both raise the errors of SQL and Redis.
    `max_detection_age` is in seconds.
    """

    database: Database
    sessions: Sessions
    sign_in: SignIn
    cipher: Cipher | None
    nudge: Callable[[], None]
    check_url: Callable[[str], Awaitable[None]]
    try_connector: Callable[[int], Awaitable[Trial]]
    past_calls: Callable[[int], Awaitable[CallHistory]]
    newest_claims: Callable[[int, str, Collection[int]], Awaitable[dict[int, HeldClaim]]]
    recent_decisions: Callable[[int, str], Awaitable[list[KeptDecision]]]
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
    trial_slots: TrialSlots = field(default_factory=TrialSlots)
    venue_counts: VenueCounts = field(default_factory=VenueCounts)
