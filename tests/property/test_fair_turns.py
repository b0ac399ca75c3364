"""Turns of companies under any order of events keep the promises of FairTurns."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from engine.trigger.fair_turns import _MOST_STALLED, FairTurns

COMPANIES = range(1, 5)
EVENTS = st.tuples(st.sampled_from(["ask", "end", "give up", "stall"]), st.integers(0, 30))


class _RequestedTurn:
    """A requested turn: it waits, it runs, or it is over."""

    def __init__(self, turns: FairTurns, company: int, given: list[int]) -> None:
        self.company = company
        self.runs = False
        self.over = asyncio.Event()
        self.timer: asyncio.TimerHandle
        self._given = given
        self.task = asyncio.create_task(self._run(turns))

    async def _run(self, turns: FairTurns) -> None:
        async with turns.turn(self.company):
            self.runs = True
            self.timer = _newest_timer()
            self._given.append(self.company)
            await self.over.wait()


class _Scene:
    """Companies that request turns. `given` is the order in which they got them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.turns = FairTurns(most, stalled_after=1e6)
        self.stalled: set[_RequestedTurn] = set()
        self.requested: list[_RequestedTurn] = []
        self.given: list[int] = []
        self._overtaken: dict[int, Counter[int]] = {}

    def having(self, runs: bool) -> list[_RequestedTurn]:
        return [each for each in self.requested if each.runs == runs]

    async def happen(self, event: str, number: int) -> None:
        """The event, for one of those that it can happen to; and what follows from it."""
        seen = len(self.given)
        if event == "ask":
            company = COMPANIES[number % len(COMPANIES)]
            self.requested.append(_RequestedTurn(self.turns, company, self.given))
        elif event == "stall":
            self._stall(number)
        elif some := self.having(runs=event == "end"):
            one = some[number % len(some)]
            self.requested.remove(one)
            self.stalled.discard(one)
            if event == "end":
                one.over.set()
            else:
                one.task.cancel()
            await asyncio.wait([one.task])
        for _ in range(3):
            await asyncio.sleep(0)
        self._note_overtaking(self.given[seen:])

    def _stall(self, number: int) -> None:
        running = [each for each in self.having(runs=True) if each not in self.stalled]
        if running:
            one = running[number % len(running)]
            if len(self.stalled) < _MOST_STALLED:
                self.stalled.add(one)
            one.timer._run()  # as if the time had come

    def _note_overtaking(self, given: list[int]) -> None:
        for company in given:
            self._overtaken.pop(company, None)
            for passed in self._overtaken.values():
                passed[company] += 1
        running = self._running()
        waiting = {each.company for each in self.having(runs=False)}
        for company in COMPANIES:
            if company in waiting and running[company] < self.most - 1:
                self._overtaken.setdefault(company, Counter())
            else:
                self._overtaken.pop(company, None)

    def _running(self) -> Counter[int]:
        return Counter(each.company for each in self.having(runs=True) if each not in self.stalled)

    def check(self) -> None:
        """What holds at any time."""
        running = self._running()
        assert self.turns._running == running, "each runs, or is stalled, or waits: once"
        assert self.turns._stalled == len(self.stalled)
        queued = Counter(
            {
                company: sum(not each.done() for each in queue)
                for company, queue in self.turns._waiting.items()
            }
        )
        assert +queued == Counter(each.company for each in self.having(runs=False))
        assert running.total() <= self.most
        assert max(running.values(), default=0) <= self.most - 1, "one is left to the others"
        for company, count in queued.items():
            free = running.total() < self.most and running[company] < self.most - 1
            assert not (count and free), "no turn is free while a company waits that may have it"
        for company, passed in self._overtaken.items():
            assert max(passed.values(), default=0) <= 1, f"company {company} starves"


def _newest_timer() -> asyncio.TimerHandle:
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return max(scheduled, key=lambda handle: handle.when())


@given(most=st.integers(2, 5), events=st.lists(EVENTS, max_size=60))
def test_no_company_starves_and_no_turn_is_lost(most: int, events: list[tuple[str, int]]) -> None:
    async def play() -> None:
        scene = _Scene(most)
        for event, number in events:
            await scene.happen(event, number)
            scene.check()
        # Whoever still waits has its turn, once the others end theirs.
        while scene.requested:
            assert scene.having(runs=True)
            await scene.happen("end", 0)
            scene.check()
        assert not scene.turns._running
        assert not scene.turns._waiting

    asyncio.run(play())
