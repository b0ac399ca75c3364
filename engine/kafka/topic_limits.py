"""How large a batch and a message a topic takes, as its brokers have shown."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

# A batch stays under the brokers' default message.max.bytes (1 MiB); a single message may be
# larger, where the topic allows it.
_BATCH_BYTES = 900_000
# A larger message leaves alone, so that a refusal names it, and takes no other along.
_ALONE_BYTES = 256 * 1024
_REMEMBERED = 60.0  # seconds: a topic's limit may be raised


class _Refusal(NamedTuple):
    size: int
    until: float


class TopicLimits:
    """What was refused as too large, remembered for a minute, by topic.

    A refusal costs the producer its place in the sequence of all its batches, so the same must
    not be asked again and again. `clock` in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batch_bytes: dict[str, int] = {}
        self._refusals: dict[str, _Refusal] = {}

    def joins(self, topic: str, size: int, others: int) -> bool:
        """Whether a message of `size` may join a batch that has `others` bytes."""
        return size <= _ALONE_BYTES and others + size <= self._batch_bytes.get(topic, _BATCH_BYTES)

    def refuses(self, topic: str, size: int) -> bool:
        """Whether the topic refused a message of this size, or less, a short while ago."""
        refusal = self._refusals.get(topic)
        return refusal is not None and size >= refusal.size and self._clock() < refusal.until

    def note(self, topic: str, sizes: Sequence[int]) -> None:
        """The brokers refused a batch of messages of these sizes."""
        if len(sizes) > 1:
            self._batch_bytes[topic] = self._batch_bytes.get(topic, _BATCH_BYTES) // 2
            return
        known = self._refusals.get(topic)
        now = self._clock()
        size = sizes[0] if known is None or now >= known.until else min(sizes[0], known.size)
        self._refusals[topic] = _Refusal(size, now + _REMEMBERED)
