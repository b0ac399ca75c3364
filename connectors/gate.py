"""What this process knows of the breakers, and how it keeps in step with the others.

Outcomes are told, and standings heard, in few exchanges for all companies together: a call costs
no round trip of its own. While the shared store is away the process goes by its own breakers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from connectors.breaker import CLOSED, BreakerStore, LocalBreakers, Report, Standing, Wish

log = structlog.get_logger(__name__)

_TELL_SECONDS = 0.05  # outcomes are gathered for so long before they are told
_KNOWN_SECONDS = 1.0  # a standing that is older is asked for before the next call
_FORGET_SECONDS = 60.0
_STORE_PAUSE = 1.0  # a store that failed is left alone for so long


@dataclass(slots=True)
class _Known:
    standing: Standing = CLOSED
    heard: float = float("-inf")
    outcomes: list[bool] = field(default_factory=list)
    wish: Wish | None = None
    probing: bool = False


class Gate:
    """Says who may call. `run` must run. `name` tells this process from the others.

    `on_standing(company_id, standing)` is called with each standing heard that was asked for or
    has changed. `on_store_error` counts. Times are epoch seconds of `clock`.
    """

    def __init__(
        self,
        *,
        store: BreakerStore,
        local: LocalBreakers,
        name: str,
        clock: Callable[[], float],
        may_pass: Callable[[Exception], bool],
        on_store_error: Callable[[], None],
    ) -> None:
        self._store = store
        self._local = local
        self._name = name
        self._clock = clock
        self._may_pass = may_pass
        self._on_store_error = on_store_error
        self._known: dict[int, _Known] = {}
        self._to_tell: dict[int, _Known] = {}
        self._wanted = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None
        self._store_away_until = float("-inf")
        self.on_standing: Callable[[int, Standing], None] = lambda _company, _standing: None

    def is_closed(self, company_id: int) -> bool:
        """Whether calls may go, as of not long ago. If not, `ask`."""
        known = self._known.get(company_id)
        if known is None or known.standing.is_open:
            return False
        return self._clock() < known.heard + _KNOWN_SECONDS

    def is_open(self, company_id: int) -> bool:
        """Whether it was open when it was last heard of."""
        known = self._known.get(company_id)
        return known is not None and known.standing.is_open

    def ask(self, company_id: int) -> None:
        """How does it stand? `on_standing` is told, soon."""
        known = self._telling_of(company_id)
        known.wish = known.wish or Wish.ASK
        self._wanted.set()

    def note(self, company_id: int, failed: bool) -> None:
        """The outcome of a call, told to the others soon."""
        self._telling_of(company_id).outcomes.append(failed)
        if self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(_TELL_SECONDS, self._wanted.set)

    def probed(self, company_id: int, wish: Wish) -> None:
        """What the call of the prober came to: PASSED, FAILED, or LEAVE."""
        known = self._telling_of(company_id)
        known.wish = wish
        known.probing = False
        self._wanted.set()

    def counts(self) -> dict[str, int]:
        """How many breakers stand how, as far as this process knows."""
        counts = {"closed": 0, "open": 0, "half_open": 0}
        for known in self._known.values():
            state = "open" if known.standing.is_open else "closed"
            counts["half_open" if known.probing else state] += 1
        return counts

    async def run(self) -> None:
        """Keep in step until cancelled. Raises what the store raises and may not pass."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._telling is not None:
                self._telling.cancel()
                self._telling = None
            await self._exchange()

    def forget_old(self) -> None:
        """Drop companies that were not heard of for a minute."""
        now = self._clock()
        self._local.forget_old(now)
        old = [
            company_id
            for company_id, known in self._known.items()
            if known.heard + _FORGET_SECONDS <= now and company_id not in self._to_tell
        ]
        for company_id in old:
            del self._known[company_id]

    def _of(self, company_id: int) -> _Known:
        return self._known.setdefault(company_id, _Known())

    def _telling_of(self, company_id: int) -> _Known:
        known = self._of(company_id)
        self._to_tell[company_id] = known
        return known

    def _take_reports(self) -> list[Report]:
        told, self._to_tell = self._to_tell, {}
        reports = []
        for company_id, known in told.items():
            outcomes, wish = tuple(known.outcomes), known.wish or Wish.TELL
            reports.append(Report(company_id=company_id, outcomes=outcomes, wish=wish))
            known.outcomes, known.wish = [], None
        return reports

    async def _exchange(self) -> None:
        reports = self._take_reports()
        if not reports:
            return
        now = self._clock()
        standings = await self._local.exchange(reports, prober=self._name, now=now)
        if now >= self._store_away_until:
            standings = await self._shared(reports, now) or standings
        for report, standing in zip(reports, standings, strict=True):
            self._hear(report, standing)

    async def _shared(self, reports: list[Report], now: float) -> list[Standing] | None:
        try:
            return await self._store.exchange(reports, prober=self._name, now=now)
        except Exception as error:  # sorted: without the store for a while, or up and stop
            if not self._may_pass(error):
                raise
            log.warning("breakers are this process's own for now", error=type(error).__name__)
            self._on_store_error()
            self._store_away_until = now + _STORE_PAUSE
            return None

    def _hear(self, report: Report, standing: Standing) -> None:
        known = self._of(report.company_id)
        changed = known.standing.is_open != standing.is_open
        if changed:
            state = "open" if standing.is_open else "closed"
            log.info("breaker", company=report.company_id, state=state)
        known.standing = standing
        known.heard = self._clock()
        known.probing = standing.is_prober
        if changed or report.wish is not Wish.TELL:
            self.on_standing(report.company_id, standing)
