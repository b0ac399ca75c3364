"""Where a partition goes on, and in which topic: an offset alone does not say.

A topic that is deleted and made anew counts from 0 again under the old name, and when it has
outgrown the old one its offsets look as if they fitted. So the topic's id stands beside the offset:
for a consumer group in the metadata of the commit, for the recorder in SQL.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

_METADATA = re.compile(
    r"topic=(?P<topic>[0-9a-f]{32})(?: finished=(?P<finished>[\w=-]*))?", re.ASCII
)


class Position(NamedTuple):
    """The first record that is yet to be done. `topic_id` is None where nobody knows it.

    `finished` is a role's own note of what is done already behind the offset.
    """

    offset: int
    topic_id: str | None = None
    finished_ranges: str = ""

    def to_commit(self) -> OffsetAndMetadata:
        """As a group commits it."""
        if self.topic_id is None:
            return OffsetAndMetadata(self.offset, "")
        finished = f" finished={self.finished_ranges}" if self.finished_ranges else ""
        return OffsetAndMetadata(self.offset, f"topic={self.topic_id}{finished}")

    @classmethod
    def from_commit(cls, committed: OffsetAndMetadata) -> "Position":
        """Of a commit; whatever else wrote its metadata has told nothing of the topic."""
        found = _METADATA.fullmatch(committed.metadata or "")
        if found is None:
            return cls(committed.offset)
        return cls(committed.offset, found["topic"], found["finished"] or "")

    def may_belong_to(self, topic_id: str | None) -> bool:
        """Whether it is a place in the topic of this id, as far as is known."""
        return self.topic_id is None or topic_id is None or self.topic_id == topic_id

    def topic_ended_before(self, new: "Position") -> bool:
        """Whether the topic of this place is no more where partitions go on at `new`."""
        return new.offset < self.offset or not self.may_belong_to(new.topic_id)


class PositionStore(Protocol):
    """Who knows where partitions go on."""

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """Where each goes on; one that is new is left out. May wait as long as it takes."""

    async def replace(
        self,
        old: Mapping[TopicPartition, Position],
        new: Mapping[TopicPartition, Position],
    ) -> bool:
        """`new` go on elsewhere than `old` said, or in a topic whose id was not known.

        False if `old` is not true any more: ask again.
        """
