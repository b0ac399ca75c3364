"""Publishes dead letters again to their original topics, byte for byte, none of them twice.

The progress is committed for a consumer group: an offset for each partition and, in the commit's
metadata, the further offsets of single reasons.
"""

from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from engine.cli.dead_letters.letter import Letter, read_letters
from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.topic_reader import TopicReader, open_admin
from engine.kafka.topics import Topics
from engine.process.retry import Backoff
from engine.process.settings import Settings

_decode = msgspec.json.Decoder(dict[str, int]).decode


@dataclass
class ReplayedOffsets:
    """The progress in one partition: all letters below `everything` are replayed, and those of a
    reason below its offset in `by_reason`.

    So a replay of one reason does not mark the letters of other reasons that it skips.
    """

    everything: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, committed: OffsetAndMetadata | None) -> "ReplayedOffsets":
        """Read a commit, whose metadata another program may have written."""
        if committed is None:
            return cls()
        try:
            by_reason = _decode(committed.metadata or "{}")
        except msgspec.DecodeError:
            by_reason = {}
        return cls(max(0, committed.offset), by_reason)

    def committed(self) -> OffsetAndMetadata:
        """The offset and metadata for the group's commit."""
        metadata = msgspec.json.encode(self.by_reason).decode() if self.by_reason else ""
        return OffsetAndMetadata(self.everything, metadata)

    def start(self, reason: str | None) -> int:
        """The first offset that may not be replayed yet, for one reason or for all."""
        return max(self.everything, self.by_reason.get(reason or "", 0))

    def includes(self, offset: int, reason: str) -> bool:
        """Whether the letter at `offset` is replayed."""
        return offset < self.start(reason)

    def advance(self, reason: str | None, until: int) -> None:
        """Note all letters of `reason` (None: all letters) below `until` as replayed."""
        if reason is not None:
            self.by_reason[reason] = max(until, self.by_reason.get(reason, 0))
        else:
            self.everything = max(until, self.everything)
        self.by_reason = {r: o for r, o in self.by_reason.items() if o > self.everything}


class PutBackRequest(NamedTuple):
    """Which letters to put back: of one reason, at most `limit`, or also replayed ones."""

    reason: str | None = None
    limit: int | None = None
    from_beginning: bool = False


@dataclass
class ReplayCounts:
    """The letters that were put back, and those that cannot be."""

    put_back: int = 0
    left_out: int = 0


class DeadLetterReplay:
    """Puts back the letters of `request`, and counts them in `counts`.

    Each batch is published and then committed: a crash between the two repeats the batch.
    `on_left_out` is called with a letter that cannot be put back; it is not retried. Without a
    publisher nothing is published and nothing is committed.
    """

    def __init__(
        self,
        *,
        reader: TopicReader,
        publisher: Publisher | None,
        topics: Topics,
        replayed: dict[TopicPartition, ReplayedOffsets],
        request: PutBackRequest,
        counts: ReplayCounts,
        on_left_out: Callable[[Letter, str], None],
    ) -> None:
        self._reader = reader
        self._publisher = publisher
        self._topics = topics
        self._replayed = replayed
        self._request = request
        self._counts = counts
        self._on_left_out = on_left_out

    async def run(self) -> None:
        """Replay up to the present end of the topic, or to the limit.

        Raises KafkaError, TimeoutError or MessageTooLargeError.
        """
        request = self._request
        starts = {
            tp: 0 if request.from_beginning else replayed.start(request.reason)
            for tp, replayed in self._replayed.items()
        }
        async with aclosing(read_letters(self._reader, starts)) as batches:
            async for letters in batches:
                outgoing = self._take(letters)
                if self._publisher is not None:
                    await self._publisher.publish(outgoing)
                    await self._reader.commit(
                        {tp: replayed.committed() for tp, replayed in self._replayed.items()}
                    )
                self._counts.put_back += len(outgoing)
                if self._is_enough(self._counts.put_back):
                    return

    def _take(self, letters: Iterable[Letter]) -> list[Outgoing]:
        """The messages for one partition's letters, which count as replayed from now on."""
        request = self._request
        outgoing: list[Outgoing] = []
        for letter in letters:
            if self._is_enough(self._counts.put_back + len(outgoing)):
                break
            replayed = self._replayed[letter.place]
            is_new = request.from_beginning or not replayed.includes(letter.offset, letter.reason)
            if is_new and request.reason in (None, letter.reason):
                outgoing += self._original(letter)
            replayed.advance(request.reason, letter.offset + 1)
        return outgoing

    def _is_enough(self, count: int) -> bool:
        return self._request.limit is not None and count >= self._request.limit

    def _original(self, letter: Letter) -> list[Outgoing]:
        obstacle = letter.obstacle(self._topics)
        if obstacle is not None or letter.topic is None:
            self._counts.left_out += 1
            self._on_left_out(letter, obstacle or "")
            return []
        return [Outgoing(letter.topic, letter.key, letter.value, letter.headers)]


async def replayed_by(
    settings: Settings, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, ReplayedOffsets]:
    """The offsets that `group` has committed. Raises KafkaError or TimeoutError."""
    if not partitions:
        return {}
    backoff = Backoff()
    async with open_admin(settings) as admin:
        while True:
            try:
                found = await admin.list_consumer_group_offsets(group, partitions=partitions)
            except KafkaError as error:
                # A new cluster answers at first that the group has no coordinator.
                if not error.retriable:
                    raise
            else:
                return {tp: ReplayedOffsets.read(found.get(tp)) for tp in partitions}
            await backoff.pause()
