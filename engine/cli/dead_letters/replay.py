"""Dead letters back on the topics they came from, byte for byte, none of them twice."""

from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple

from engine.cli.dead_letters.letter import Letter
from engine.cli.dead_letters.reader import LetterReader
from engine.cli.dead_letters.replayed import Settled
from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.topics import Topics


class Wish(NamedTuple):
    """What to put back: only one reason, at most `limit`, or `again` from the beginning."""

    reason: str | None = None
    limit: int | None = None
    again: bool = False


class Replay:
    """Puts back what `wish` asks for. `put_back` and `left_out` count.

    What is published is committed behind each batch: a crash between the two repeats that batch.
    A letter that cannot be put back is told to `on_left_out`, and is settled all the same.
    Without a publisher nothing is published and nothing is committed.
    """

    def __init__(
        self,
        *,
        reader: LetterReader,
        publisher: Publisher | None,
        topics: Topics,
        settled: dict[int, Settled],
        wish: Wish,
        on_left_out: Callable[[Letter, str], None],
    ) -> None:
        self.put_back = 0
        self.left_out = 0
        self._reader = reader
        self._publisher = publisher
        self._topics = topics
        self._settled = settled
        self._wish = wish
        self._on_left_out = on_left_out

    async def run(self) -> None:
        """To the end that the topic had, or the limit. Raises KafkaError, TimeoutError,
        MessageTooLargeError."""
        async with aclosing(self._reader.letters(self._starts())) as read:
            async for letters in read:
                outgoing = self._take(letters)
                if self._publisher is not None:
                    await self._publisher.publish(outgoing)
                    await self._reader.commit(self._settled)
                self.put_back += len(outgoing)
                if self._is_enough(0):
                    return

    def _starts(self) -> dict[int, int]:
        if self._wish.again:
            return {}
        return {number: s.start(self._wish.reason) for number, s in self._settled.items()}

    def _take(self, letters: Iterable[Letter]) -> list[Outgoing]:
        """What to publish of one partition's letters; settles what it passes."""
        outgoing: list[Outgoing] = []
        for letter in letters:
            if self._is_enough(len(outgoing)):
                break
            if self._is_wanted(letter):
                outgoing += self._restored(letter)
            self._settled[letter.partition].advance(self._wish.reason, letter.offset + 1)
        return outgoing

    def _is_enough(self, more: int) -> bool:
        return self._wish.limit is not None and self.put_back + more >= self._wish.limit

    def _is_wanted(self, letter: Letter) -> bool:
        if self._wish.reason not in (None, letter.reason):
            return False
        settled = self._settled[letter.partition]
        return self._wish.again or not settled.includes(letter.offset, letter.reason)

    def _restored(self, letter: Letter) -> list[Outgoing]:
        obstacle = letter.obstacle(self._topics)
        if obstacle is not None or letter.topic is None:
            self.left_out += 1
            self._on_left_out(letter, obstacle or "")
            return []
        return [Outgoing(letter.topic, letter.key, letter.value, [])]
