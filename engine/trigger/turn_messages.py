"""The messages of one turn, and the lanes that they come from."""

from collections.abc import Iterable, Iterator, Sequence

from engine.kafka.publisher import OnAcknowledged, Outgoing
from engine.process.metrics import Metrics
from engine.trigger.company_turns import OnEnded
from engine.trigger.grants import GrantMessage
from engine.trigger.lanes import CompanyLane


class TurnMessages:
    """Finishes each lane as soon as all of its messages are acknowledged.

    The partitions of the notifications may have different leaders: where one of them does not
    answer, only the lanes wait whose messages it has to acknowledge.
    """

    def __init__(self, lanes: Sequence[CompanyLane], metrics: Metrics, ended: OnEnded) -> None:
        self.messages: list[GrantMessage] = []
        self._metrics = metrics
        self._ended = ended
        self._unacknowledged = dict.fromkeys(lanes, 0)
        self._only = lanes[0] if len(lanes) == 1 else None  # it ends with the turn
        self._lane_of: dict[int, CompanyLane] = {}  # by the identity of the message

    @property
    def on_acknowledged(self) -> OnAcknowledged | None:
        """Where to say what is acknowledged; a single lane does not need to know."""
        return None if self._only else self.note_acknowledged

    def add(self, lane: CompanyLane, messages: Sequence[GrantMessage]) -> None:
        """Add the messages of a lane; a lane that has none is finished."""
        self.messages += messages
        self._unacknowledged[lane] = len(messages)
        if not messages:
            self._finish(lane)
        if self._only is None:
            self._lane_of.update((id(each.message), lane) for each in messages)

    def note_acknowledged(self, messages: Iterable[Outgoing]) -> None:
        """The brokers have these messages."""
        for message in messages:
            lane = self._lane_of.pop(id(message), None)
            if lane is not None:
                self._unacknowledged[lane] -= 1
                if not self._unacknowledged[lane]:
                    self._finish(lane)

    def by_lane(
        self, refused: Iterable[GrantMessage]
    ) -> Iterator[tuple[CompanyLane, list[GrantMessage]]]:
        """Messages that the brokers did not acknowledge, with their lane."""
        found: dict[CompanyLane, list[GrantMessage]] = {}
        for each in refused:
            lane = self._only or self._lane_of[id(each.message)]
            found.setdefault(lane, []).append(each)
        yield from found.items()

    def finish_all(self) -> None:
        """Finish the lanes that are left: all is published, or has a dead letter in its place."""
        for lane in list(self._unacknowledged):
            self._finish(lane)

    def _finish(self, lane: CompanyLane) -> None:
        del self._unacknowledged[lane]
        lane.finish(self._metrics)
        self._ended(lane)
