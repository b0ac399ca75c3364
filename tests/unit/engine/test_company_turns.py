"""Lanes of a company that share turns."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from engine.process.cancelling import cancel
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.company_turns import CompanyTurns, OnEnded
from engine.trigger.fair_turns import FairTurns
from engine.trigger.grants import Candidate
from engine.trigger.lanes import CompanyLane
from tests.servers.waiting import eventually

CANDIDATE = cast(Candidate, None)


class Turns:
    """Turns that are noted, and that last until `go_on` is set."""

    def __init__(self, most: int = 4) -> None:
        self.taken: list[list[CompanyLane]] = []
        self.ended: list[OnEnded] = []
        self.cancelled = 0
        self.error: Exception | None = None
        self.go_on = asyncio.Event()
        self.fair = FairTurns(most)
        self.shared = CompanyTurns(self.fair, self._take)
        self.tasks: list[asyncio.Task[None]] = []

    async def _take(self, lanes: Sequence[CompanyLane], ended: OnEnded) -> None:
        self.taken.append(list(lanes))
        self.ended.append(ended)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error

    def lane(self, company: int, waiting: int = 1) -> CompanyLane:
        """A lane with so many candidates."""
        made = CompanyLane(
            company,
            on_finished=lambda _: None,
            remembered=ClaimMemory(10).for_assignment(),
            take_turn=self.shared.take,
        )
        made.candidates.extend([CANDIDATE] * waiting)
        return made

    def begin(self, *lanes: CompanyLane) -> list[asyncio.Task[None]]:
        """Let these lanes wait for a turn from the same moment on."""
        begun = [asyncio.create_task(self.shared.take(lane)) for lane in lanes]
        self.tasks += begun
        return begun

    async def until_taken(self, count: int) -> None:
        await eventually(lambda: len(self.taken) == count, what=f"{count} turns are taken")

    async def end(self) -> None:
        """End all turns; nothing is left of them."""
        self.go_on.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await eventually(lambda: not self.fair._running, what="the turns have ended")
        assert not self.shared._gathering
        assert not self.shared._turn_of


@pytest.fixture
def turns() -> Turns:
    return Turns()


async def test_lanes_of_a_company_that_wait_at_once_share_a_turn(turns: Turns) -> None:
    first, second, third = (turns.lane(1) for _ in range(3))
    other = turns.lane(2)
    turns.begin(first, second, other, third)
    await turns.until_taken(2)
    assert turns.taken == [[first, second, third], [other]]
    assert turns.fair._running == {1: 1, 2: 1}
    await turns.end()
    assert all(task.exception() is None for task in turns.tasks)


async def test_who_comes_later_has_the_next_turn(turns: Turns) -> None:
    first, second, third = (turns.lane(1) for _ in range(3))
    turns.begin(first)
    await turns.until_taken(1)
    turns.begin(second, third)
    await turns.until_taken(2)
    assert turns.taken == [[first], [second, third]]
    await turns.end()


async def test_lanes_gather_while_the_company_has_no_turn(turns: Turns) -> None:
    lanes = [turns.lane(1) for _ in range(6)]
    for lane in lanes[:3]:  # all that a company may have of four
        turns.begin(lane)
        await turns.until_taken(len(turns.taken) + 1)
    for lane in lanes[3:]:
        turns.begin(lane)
        await asyncio.sleep(0)
    await turns.end()
    assert turns.taken == [[lanes[0]], [lanes[1]], [lanes[2]], lanes[3:]]


@pytest.mark.parametrize(
    ("waiting", "shared"),
    [
        ((512, 512, 1), [[0, 1], [2]]),
        ((5000, 1, 1), [[0], [1, 2]]),
        ((1, 5000, 1), [[0], [1], [2]]),
        ((1023, 2), [[0], [1]]),
        ((1023, 1), [[0, 1]]),
    ],
)
async def test_a_turn_has_so_many_detections(
    turns: Turns, waiting: tuple[int, ...], shared: list[list[int]]
) -> None:
    lanes = [turns.lane(1, count) for count in waiting]
    turns.begin(*lanes)
    await turns.until_taken(len(shared))
    assert [[lanes.index(lane) for lane in taken] for taken in turns.taken] == shared
    await turns.end()


async def test_a_lane_goes_on_when_its_own_part_is_finished(turns: Turns) -> None:
    first, second = turns.lane(1), turns.lane(1)
    of_first, of_second = turns.begin(first, second)
    await turns.until_taken(1)
    turns.ended[0](first)
    await of_first
    assert not of_second.done()
    turns.begin(first)
    await turns.until_taken(2)
    turns.ended[0](first)  # again: of the turn that it has left
    await asyncio.sleep(0)
    assert not turns.tasks[-1].done()
    await turns.end()
    assert turns.taken == [[first, second], [first]]


async def test_an_error_reaches_the_lanes_that_are_left(turns: Turns) -> None:
    lanes = [turns.lane(1) for _ in range(3)]
    tasks = turns.begin(*lanes)
    turns.error = RuntimeError("a permanent error")
    await turns.until_taken(1)
    turns.ended[0](lanes[1])
    await tasks[1]
    turns.go_on.set()
    for task in (tasks[0], tasks[2]):
        with pytest.raises(RuntimeError, match="a permanent error"):
            await task
    await turns.end()


async def test_a_cancelled_lane_leaves_and_the_others_go_on(turns: Turns) -> None:
    lanes = [turns.lane(1) for _ in range(3)]
    tasks = turns.begin(*lanes)
    await turns.until_taken(1)
    await cancel([tasks[0]])
    assert turns.cancelled == 0
    assert not tasks[1].done()
    await turns.end()
    assert tasks[0].cancelled()
    assert [task.exception() for task in tasks[1:]] == [None, None]


async def test_a_turn_ends_with_its_last_lane(turns: Turns) -> None:
    tasks = turns.begin(turns.lane(1), turns.lane(1))
    await turns.until_taken(1)
    await cancel(tasks)
    assert turns.cancelled == 1
    assert not turns.fair._running, "when the cancellation is through, the turn has ended"
    await turns.end()


@pytest.mark.parametrize("steps", range(4))
async def test_a_lane_is_cancelled_before_its_turn_begins(turns: Turns, steps: int) -> None:
    first, second, third = (turns.lane(1) for _ in range(3))
    (of_first,) = turns.begin(first)
    for _ in range(steps):
        await asyncio.sleep(0)
    await cancel([of_first])
    both = turns.begin(second, third)
    await eventually(lambda: [second, third] in turns.taken, what="the others have theirs")
    await turns.end()
    assert [task.exception() for task in both] == [None, None]


async def test_a_lane_that_was_too_much_may_be_cancelled_too(turns: Turns) -> None:
    lanes = [turns.lane(1, 5000) for _ in range(6)]
    tasks = turns.begin(*lanes)
    await turns.until_taken(3)
    await cancel(tasks[3:])
    assert turns.cancelled == 0
    assert turns.fair._running == {1: 3}
    await turns.end()
    assert turns.taken == [[lane] for lane in lanes[:3]]


async def test_lanes_fail_with_a_turn_that_somebody_else_cancels(turns: Turns) -> None:
    """Their detections are no longer in them: they must be read again."""
    tasks = turns.begin(turns.lane(1), turns.lane(1))
    await turns.until_taken(1)
    (turn,) = set(turns.shared._turn_of.values())
    await cancel([turn.task])
    for task in tasks:
        with pytest.raises(RuntimeError, match="the turn was cancelled"):
            await task
    await turns.end()


async def test_nothing_is_left_of_what_the_loop_cancels(turns: Turns) -> None:
    """As at the end of a program, when every task is cancelled at once."""
    turns.begin(turns.lane(1), turns.lane(1), turns.lane(2))
    await turns.until_taken(2)
    mine: Any = asyncio.current_task()
    await cancel(asyncio.all_tasks() - {mine})
    await turns.end()
