"""Turns of a company, which its lanes on all partitions of the process share.

A turn costs nearly as much for one detection as for a hundred: a call of Redis, a look-up of
devices, a request to the brokers. So the lanes of a company that wait at the same moment have one
turn together, however many partitions the process has (docs/decisions/0130).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from engine.process.cancelling import cancel
from engine.trigger.fair_turns import FairTurns
from engine.trigger.lanes import CompanyLane

_DETECTIONS = 1024  # of all lanes of a turn; a lane that has more has a turn alone

OnEnded = Callable[[CompanyLane], None]
TakeTurn = Callable[[Sequence[CompanyLane], OnEnded], Awaitable[None]]


class CompanyTurns:
    """Gathers lanes into turns, and runs `take_turn` for each turn as a task of its own.

    `take_turn` handles the next items of lanes of one company. It calls its second argument for
    each lane whose part is finished; the others end with the turn. A lane that is cancelled leaves
    its turn, which goes on for the other lanes and ends with the last of them.
    """

    def __init__(self, turns: FairTurns, take_turn: TakeTurn) -> None:
        self._turns = turns
        self._take_turn = take_turn
        self._gathering: dict[int, _Turn] = {}  # by company
        self._turn_of: dict[CompanyLane, _Turn] = {}

    async def take(self, lane: CompanyLane) -> None:
        """Take part in a turn, until the lane's part is finished. Raises errors of the turn."""
        self._join(lane, part := asyncio.get_running_loop().create_future())
        try:
            await part
        except asyncio.CancelledError:
            turn = self._turn_of[lane]
            turn.parts.pop(lane, None)
            if not turn.parts:
                await cancel([turn.task])
            raise
        finally:
            del self._turn_of[lane]

    def _join(self, lane: CompanyLane, part: "asyncio.Future[None]") -> None:
        company = lane.number
        turn = self._gathering.get(company)
        if turn is None:
            turn = self._gathering[company] = _Turn()
            # It begins after the lanes that were filled in the same run of the loop have joined it.
            turn.task = asyncio.create_task(self._run(company, turn), name=f"turn of {company}")
        self._turn_of[lane] = turn
        turn.parts[lane] = part

    async def _run(self, company: int, turn: "_Turn") -> None:
        try:
            async with self._turns.turn(company):
                self._close(company, turn)
                await self._take_turn(list(turn.parts), turn.end)
            for lane in list(turn.parts):
                turn.end(lane)
        except Exception as error:  # for the lanes, which pass it on
            turn.fail(error)
        finally:
            if self._gathering.get(company) is turn:
                del self._gathering[company]
            # Cancelled: what the lanes have handed over is neither sent nor waiting in them.
            turn.fail(RuntimeError("the turn was cancelled"))

    def _close(self, company: int, turn: "_Turn") -> None:
        """Let nobody else join; lanes that are too much for one turn gather for the next."""
        del self._gathering[company]
        room = _DETECTIONS
        for place, lane in enumerate(list(turn.parts)):
            room -= lane.waiting
            if place and room < 0:
                self._join(lane, turn.parts.pop(lane))


class _Turn:
    """A turn that gathers lanes or runs; `parts` has the lanes whose part is not finished."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.parts: dict[CompanyLane, asyncio.Future[None]] = {}

    def end(self, lane: CompanyLane) -> None:
        """The lane's part is finished."""
        part = self.parts.pop(lane, None)
        if part is not None and not part.done():
            part.set_result(None)

    def fail(self, error: Exception) -> None:
        """All parts that are not finished fail."""
        for part in self.parts.values():
            if not part.done():
                part.set_exception(error)
                part.exception()  # retrieved, if the lane is cancelled at the same moment
        self.parts.clear()
