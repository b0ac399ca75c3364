"""Lanes: which records they finish, when, and in what order."""

import asyncio
from typing import Any

import pytest

from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.detections import decode_record
from engine.process.metrics import Metrics
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.counts import DecisionCounts
from engine.trigger.fair_turns import FairTurns
from engine.trigger.grants import Candidate, Grant, grants_of
from engine.trigger.lanes import DEAD_LETTERS, CompanyLane, DeadLetterLane, Record
from rules.model import Reason
from rules.outcome import Decision
from tests.unit.engine.records import detection, record
from tests.unit.engine.test_compose import BEACON, campaign

CAMPAIGNS = (campaign(id=1), campaign(id=2))
GRANTED = Decision(Reason.GRANTED, granted=CAMPAIGNS)
INDEXED = IndexedBeacon(BEACON, CAMPAIGNS, None)


def candidate(offset: int) -> Candidate:
    return Candidate(decode_record(record(detection(), offset=offset), 2.0), INDEXED, 0)


def grants(of: Candidate) -> list[Grant]:
    return list(grants_of(of.detection, of.beacon, GRANTED))


def offsets(records: list[Record]) -> list[int]:
    return [each.offset for each in records]


class Finished:
    """The grants that a lane reported as finished, in the order of its reports."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, records: list[Record]) -> None:
        self.batches.append(offsets(records))


def company_lane(finished: Finished, take_turn: Any) -> CompanyLane:
    return CompanyLane(
        9,
        on_finished=finished,
        remembered=ClaimMemory(10).for_assignment(),
        take_turn=take_turn,
    )


async def test_records_are_finished_once_nothing_before_the_next_waits() -> None:
    finished, metrics = Finished(), Metrics()
    steps = []

    async def take_turn(lane: CompanyLane) -> None:
        """Decide two at a time, publish one grant a turn."""
        if not lane.grants:
            taken = [lane.candidates.popleft() for _ in range(min(2, len(lane.candidates)))]
            lane.put_grants(
                [grant for each in taken[::2] for grant in grants(each)],
                DecisionCounts([GRANTED] * len(taken)),
            )
        lane.grants.popleft()
        lane.finish(metrics)
        steps.append((list(finished.batches), metrics.detections.labels("granted")._value.get()))

    lane = company_lane(finished, take_turn)
    for offset in (4, 7, 9):
        lane.put(candidate(offset))
    assert not lane.is_empty
    await lane.run()
    # Of 4 a grant is left; then it is done, and 7 with it, which led to nothing; then 9's two.
    assert steps == [
        ([], 0),
        ([[4, 7]], 2),
        ([[4, 7]], 2),
        ([[4, 7], [9]], 3),
    ]
    assert lane.is_empty


async def test_a_lane_that_fails_finishes_nothing_more() -> None:
    finished = Finished()

    async def take_turn(lane: CompanyLane) -> None:
        raise RuntimeError("a permanent error")

    lane = company_lane(finished, take_turn)
    lane.put(candidate(1))
    with pytest.raises(RuntimeError, match="a permanent error"):
        await lane.run()
    assert finished.batches == []
    assert not lane.is_empty


async def test_a_lane_of_dead_letters_waits_for_a_turn() -> None:
    turns = FairTurns(2)
    finished, taken = Finished(), asyncio.Event()

    async def publish(letters: list[DeadLetter]) -> None:
        taken.set()

    lane = DeadLetterLane(turns=turns, turn_bytes=10, on_finished=finished, publish=publish)
    lane.put(letter(1))
    async with turns.turn(1), turns.turn(2):
        running = asyncio.create_task(lane.run())
        await asyncio.sleep(0)
        assert turns._waiting.keys() == {DEAD_LETTERS}
        assert not taken.is_set()
    await running
    assert finished.batches == [[1]]


def letter(offset: int, value: bytes | None = b"x", key: bytes | None = None) -> DeadLetter:
    return DeadLetter(record(value, offset=offset, key=key), DeadLetterReason.MALFORMED_JSON, "-")


async def left_in(letters: list[DeadLetter], turn_bytes: int) -> list[list[int]]:
    """The offsets that leave together."""
    finished, left = Finished(), list[list[int]]()

    async def publish(some: list[DeadLetter]) -> None:
        assert finished.batches == left, "finished when acknowledged, not before"
        left.append([each.record.offset for each in some])

    lane = DeadLetterLane(
        turns=FairTurns(2), turn_bytes=turn_bytes, on_finished=finished, publish=publish
    )
    for each in letters:
        lane.put(each)
    await lane.run()
    assert lane.is_empty
    assert finished.batches == left
    return left


async def test_dead_letters_leave_up_to_the_bytes_of_a_turn_key_and_value() -> None:
    letters = [letter(1, b"x" * 4, b"k" * 2), letter(2, b"x" * 4), letter(3), letter(4, None)]
    assert await left_in(letters, 10) == [[1, 2], [3, 4]]
    assert await left_in(letters, 11) == [[1, 2, 3], [4]]


async def test_a_dead_letter_larger_than_a_turn_leaves_alone() -> None:
    assert await left_in([letter(1, b"x" * 50), letter(2)], 10) == [[1], [2]]


async def test_a_turn_has_256_dead_letters_at_the_most() -> None:
    batches = await left_in([letter(number) for number in range(600)], 10**6)
    assert [len(batch) for batch in batches] == [256, 256, 88]


async def test_an_abandoned_lane_has_nothing_left() -> None:
    finished, metrics = Finished(), Metrics()
    lane = company_lane(finished, None)
    for offset in (1, 2, 3):
        lane.put(candidate(offset))
    assert lane.waiting == 3
    lane.put_grants(grants(lane.candidates.popleft()), DecisionCounts([GRANTED]))
    assert lane.waiting == 2, "the grants of the first come before the other candidates"
    lane.drop_grants(1)
    assert (lane.waiting, lane.grants[0].campaign.id) == (1, 2)
    lane.abandon()
    assert (lane.waiting, len(lane.candidates), len(lane.grants)) == (0, 0, 0)
    lane.put_grants(grants(candidate(2)), DecisionCounts([GRANTED]))
    lane.finish(metrics)
    assert not lane.grants
    assert finished.batches == []
