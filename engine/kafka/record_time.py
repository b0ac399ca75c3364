"""The timestamp of an outgoing record: this host's time, its cause's timestamp, or none.

Brokers refuse records whose timestamp is too far from their own clock
(message.timestamp.after.max.ms, an hour by default since Kafka 4.0). A wrong clock must not stop
this host: it publishes with the timestamp of the record that caused the message, as Kafka Streams
does, and if that is refused too without a timestamp, which every topic accepts. Consumers then see
the timestamp -1.
"""

import time
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import structlog

log = structlog.get_logger(__name__)

NO_TIMESTAMP = -1
_LATEST_MS = 253_402_300_799_999  # the end of year 9999
_REMEMBERED = 60.0  # seconds: the clock may be put right


class DatedBy(IntEnum):
    """The source of a record's timestamp, in the order in which the sources are tried."""

    HOST = 0
    CAUSE = 1
    NOBODY = 2
    __hash__ = int.__hash__  # that of Enum is written in Python


class _DateRefusal(NamedTuple):
    next_try: DatedBy
    until: float


class RecordTime:
    """Remembers for a minute which source of timestamps each topic accepts.

    After a refusal the producer must be replaced, so the same source must not be tried again and
    again. `clock` in epoch seconds, `steady` in monotonic ones.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._steady = steady
        self._refusals: dict[str, _DateRefusal] = {}

    def of(self, topic: str, cause: int | None) -> tuple[DatedBy, int]:
        """The source and the timestamp (epoch ms) for a message to `topic`.

        `cause` is the timestamp of the record that caused the message; a message without one gets
        this host's time.
        """
        refusal = self._refusals.get(topic)
        if cause is None or refusal is None or self._steady() >= refusal.until:
            return DatedBy.HOST, int(self._clock() * 1000)
        if refusal.next_try is DatedBy.CAUSE and 0 <= cause <= _LATEST_MS:
            return DatedBy.CAUSE, cause
        return DatedBy.NOBODY, NO_TIMESTAMP

    def dating(self, topic: str) -> Callable[[int | None], tuple[DatedBy, int]]:
        """Gives what `of` gives for messages to `topic` that are sent together."""
        if topic in self._refusals:
            return lambda cause: self.of(topic, cause)
        present = self.of(topic, None)
        return lambda _cause: present

    def refused(self, topic: str, dated: DatedBy) -> None:
        """The brokers refused a batch with this source: the next batch uses the next source."""
        if dated is DatedBy.NOBODY:
            return
        known = self._refusals.get(topic)
        if known is None or self._steady() >= known.until:
            log.error("Kafka refuses this host's clock: it is wrong", topic=topic)
        elif known.next_try > dated:
            return  # another task has noted the refusal already
        self._refusals[topic] = _DateRefusal(DatedBy(dated + 1), self._steady() + _REMEMBERED)
