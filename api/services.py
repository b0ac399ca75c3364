"""What the operations work with, built once with the application."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime

from api.records.live import LiveDecisions
from api.sessions.check import Sessions
from api.sessions.sign_in import SignIn
from api.slots import TrialSlots
from catalog.database import Database
from catalog.limits import DEFAULT_LIMITS, CatalogLimits
from catalog.secrets import Cipher
from connectors.reports import CallHistory, Trial
from rules.explanation import HeldClaim
from rules.kept_decision import KeptDecision


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bytes of a body, seconds for it to arrive; seconds for an answer to begin and to go on,
    and for all of it."""

    body_bytes: int = 1024 * 1024
    body_seconds: float = 15.0
    answer_seconds: float = 30.0
    whole_answer_seconds: float = 600.0


@dataclass(frozen=True, kw_only=True)
class Services:
    """Open for as long as the application serves.

    `nudge` is called after each commit, so that the index in Redis learns of it at once.
    `check_url` raises connectors.errors.EgressError for where no connector may lead. Without
    `cipher` connectors can be neither stored nor shown. `try_connector` calls that of a company
    once, and raises connectors.errors.NothingToTryError; `past_calls` reads the calls that the
    role remembers of a company, and raises what Redis does. So do `newest_claims`, those of a
    company's device by campaign, `recent_decisions` about it, the newest first, and
    `live_decisions` about a company behind a place, None while too many companies are watched.
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
    max_detection_age: float
    clock: Callable[[], datetime]
    limits: Limits = Limits()
    catalog_limits: CatalogLimits = DEFAULT_LIMITS
    trial_slots: TrialSlots = field(default_factory=TrialSlots)
