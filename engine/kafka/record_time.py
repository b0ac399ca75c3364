"""The time that an outgoing record carries: this host's, its cause's, or none.

Brokers refuse records dated too far from their own clock (message.timestamp.after.max.ms, an hour
by default since Kafka 4.0). A host whose clock is wrong must not stop for that: it publishes with
the time of the record behind the message, as Kafka Streams does, and where that is refused too
without a time, which every topic takes. Consumers then see the timestamp -1.
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
    """Whose time a record carries, in the order in which they are tried."""

    HOST = 0
    CAUSE = 1
    NOBODY = 2


class _DateRefusal(NamedTuple):
    next_try: DatedBy
    until: float


class RecordTime:
    """Which time each topic takes, remembered for a minute.

    A refusal costs the producer its place in the sequence of all its batches, so the same must
    not be asked again and again. `clock` in epoch seconds, `steady` in monotonic ones.
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
        """How a message for `topic` is dated, in epoch milliseconds. `cause` is the timestamp of
        the record behind it; a message without one carries this host's time."""
        refusal = self._refusals.get(topic)
        if cause is None or refusal is None or self._steady() >= refusal.until:
            return DatedBy.HOST, int(self._clock() * 1000)
        if refusal.next_try is DatedBy.CAUSE and 0 <= cause <= _LATEST_MS:
            return DatedBy.CAUSE, cause
        return DatedBy.NOBODY, NO_TIMESTAMP

    def refused(self, topic: str, dated: DatedBy) -> None:
        """The brokers refused a batch so dated: the next one is dated otherwise."""
        if dated is DatedBy.NOBODY:
            return
        known = self._refusals.get(topic)
        if known is None or self._steady() >= known.until:
            log.error("Kafka refuses this host's clock: it is wrong", topic=topic)
        elif known.next_try > dated:
            return  # another task has been told already
        self._refusals[topic] = _DateRefusal(DatedBy(dated + 1), self._steady() + _REMEMBERED)
