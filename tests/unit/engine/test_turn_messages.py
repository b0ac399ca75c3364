"""When the lanes of a turn are finished."""

import pytest

from engine.kafka.batch_sender import Outgoing
from engine.process.metrics import Metrics
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.counts import DecisionCounts
from engine.trigger.grants import GrantMessage
from engine.trigger.lanes import CompanyLane
from engine.trigger.turn_messages import TurnMessages
from tests.unit.engine.test_lanes import Finished, candidate, grants


class Lanes:
    """Lanes of one record each, by its offset."""

    def __init__(self, *offsets: int) -> None:
        self.finished, self.ended = Finished(), list[int]()
        self.lanes = {offset: self._lane(offset) for offset in offsets}
        self.sending = TurnMessages(list(self.lanes.values()), Metrics(), self._note)

    def _lane(self, offset: int) -> CompanyLane:
        lane = CompanyLane(
            9,
            on_finished=self.finished,
            remembered=ClaimMemory(10).for_assignment(),
            take_turn=_never,
        )
        lane.put(candidate(offset))
        return lane

    def _note(self, lane: CompanyLane) -> None:
        self.ended.append(next(n for n, each in self.lanes.items() if each is lane))

    def add(self, offset: int, messages: int) -> list[Outgoing]:
        """Take the lane's candidate, which leads to so many messages."""
        lane = self.lanes[offset]
        taken = lane.candidates.popleft()
        lane.put_grants([], DecisionCounts([]))
        both = (grants(taken) * 5)[:messages]
        # Equal, and not the same.
        made = [GrantMessage(Outgoing("t", b"k", b"v", []), grant) for grant in both]
        self.sending.add(lane, made)
        return [each.message for each in made]


async def _never(_lane: CompanyLane) -> None:
    raise AssertionError


def test_a_lane_is_finished_with_its_last_acknowledgement() -> None:
    lanes = Lanes(1, 2, 3)
    first, second = lanes.add(1, 2), lanes.add(2, 3)
    lanes.add(3, 0)
    assert lanes.ended == [3]
    assert lanes.finished.batches == [[3]]
    assert len(lanes.sending.messages) == 5
    lanes.sending.note_acknowledged([first[0], second[2], second[0]])
    assert lanes.ended == [3]
    lanes.sending.note_acknowledged([second[1]])
    assert lanes.ended == [3, 2]
    lanes.sending.note_acknowledged([second[1]])  # again, as after a repetition
    lanes.sending.note_acknowledged([first[1]])
    lanes.sending.finish_all()
    assert lanes.ended == [3, 2, 1]
    assert lanes.finished.batches == [[3], [2], [1]]


def test_what_was_refused_is_finished_with_the_turn() -> None:
    lanes = Lanes(1, 2)
    first, second = lanes.add(1, 2), lanes.add(2, 2)
    lanes.sending.note_acknowledged([first[0], second[1]])
    assert lanes.ended == []
    left = {id(first[1]), id(second[0])}
    refused = [each for each in lanes.sending.messages if id(each.message) in left]
    of_lanes = {id(lane): messages for lane, messages in lanes.sending.by_lane(refused)}
    assert of_lanes == {id(lanes.lanes[1]): [refused[0]], id(lanes.lanes[2]): [refused[1]]}
    lanes.sending.finish_all()
    assert lanes.ended == [1, 2]


@pytest.mark.parametrize("acknowledged", [True, False])
def test_an_abandoned_lane_finishes_nothing(acknowledged: bool) -> None:
    lanes = Lanes(1, 2)
    messages = lanes.add(1, 1) + lanes.add(2, 1)
    lanes.lanes[1].abandon()
    if acknowledged:
        lanes.sending.note_acknowledged(messages)
    lanes.sending.finish_all()
    assert lanes.finished.batches == [[2]]


def test_a_single_lane_ends_with_the_turn() -> None:
    lanes = Lanes(1)
    lanes.add(1, 2)
    assert lanes.sending.on_acknowledged is None
    assert Lanes(1, 2).sending.on_acknowledged is not None
    ((lane, refused),) = lanes.sending.by_lane(lanes.sending.messages)
    assert (lane, refused) == (lanes.lanes[1], lanes.sending.messages)
    lanes.sending.finish_all()
    assert lanes.ended == [1]
