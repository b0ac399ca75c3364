"""Dead letters: what cannot be processed goes aside with a reason, and never stops a partition.

Unless there are so many that the fault is ours: then the process stops rather than pour a topic
into dead letters.
"""

from collections import deque
from enum import StrEnum
from typing import NamedTuple

from aiokafka import ConsumerRecord

from engine.kafka.publisher import Outgoing
from engine.timestamps import format_instant

_WINDOW = 1000
_LONGEST_DETAIL = 500


class DeadLetterReason(StrEnum):
    """The closed list of reasons: header of the dead letter and label of the metric."""

    MALFORMED_JSON = "malformed_json"
    INVALID_FIELD = "invalid_field"
    TOO_LARGE = "too_large"
    UNKNOWN_COMPANY = "unknown_company"
    UNKNOWN_APPLICATION = "unknown_application"
    # Calls to customers' services: connectors.model.Fault.
    NO_CONNECTOR = "no_connector"
    CONNECTOR_SECRET = "connector_secret"  # noqa: S105
    CONNECTOR_STALE = "connector_stale"
    CONNECTOR_BREAKER = "connector_breaker"
    CONNECTOR_OVERLOAD = "connector_overload"
    CONNECTOR_FORBIDDEN = "connector_forbidden"
    CONNECTOR_UNREACHABLE = "connector_unreachable"
    CONNECTOR_TLS = "connector_tls"
    CONNECTOR_TIMEOUT = "connector_timeout"
    CONNECTOR_STATUS = "connector_status"
    CONNECTOR_REPLY = "connector_reply"
    CONNECTOR_REPLY_TOO_LARGE = "connector_reply_too_large"
    CONNECTOR_REQUEST = "connector_request"


class DeadLetter(NamedTuple):
    """A record that goes aside, and why. `detail` is for a person."""

    record: ConsumerRecord[bytes, bytes]
    reason: DeadLetterReason
    detail: str

    def outgoing(self, topic: str, failed_at: float) -> Outgoing:
        """The original key and value, byte for byte, with the story in the headers."""
        record = self.record
        headers = [
            ("reason", self.reason.encode()),
            ("detail", self.detail[:_LONGEST_DETAIL].encode()),
            ("topic", record.topic.encode()),
            ("partition", str(record.partition).encode()),
            ("offset", str(record.offset).encode()),
            ("failed_at", format_instant(failed_at).encode()),
        ]
        return Outgoing(topic, record.key, record.value, headers)


class TooManyDeadLettersError(Exception):
    """The limit is passed: the fault is more likely ours, or a pipeline's, than a record's."""


class DeadLetterLimit:
    """Stops a role whose records mostly fail: by share of the last 1000, or by count in a row.

    Raise the settings DEAD_LETTER_SHARE and DEAD_LETTER_RUN to let a bad stretch through.
    """

    def __init__(self, *, share: float, run: int) -> None:
        self._share = share
        self._run = run
        self._in_a_row = 0
        self._batches: deque[tuple[int, int]] = deque()

    def note(self, records: int, dead_positions: list[int]) -> None:
        """Count a batch of `records`, of which those at `dead_positions` (ascending) failed.

        Raises TooManyDeadLettersError; call it before anything of the batch is published.
        """
        self._count_run(records, dead_positions)
        if self._in_a_row >= self._run:
            raise TooManyDeadLettersError(
                f"{self._in_a_row} records in a row are dead letters (limit {self._run}): "
                "nothing of this batch was published; mend the producer, or raise "
                "PROXIMITY_DEAD_LETTER_RUN to let them through"
            )
        seen, dead = self._count_share(records, len(dead_positions))
        if seen >= _WINDOW and dead > self._share * seen:
            raise TooManyDeadLettersError(
                f"{dead} of the last {seen} records are dead letters (limit {self._share:.0%}): "
                "nothing of this batch was published; mend the producer, or raise "
                "PROXIMITY_DEAD_LETTER_SHARE to let them through"
            )

    def _count_run(self, records: int, dead_positions: list[int]) -> None:
        previous = -1
        for position in dead_positions:
            if position - previous > 1:
                self._in_a_row = 0
            self._in_a_row += 1
            previous = position
            if self._in_a_row >= self._run:
                return
        if not dead_positions or dead_positions[-1] != records - 1:
            self._in_a_row = 0

    def _count_share(self, records: int, dead: int) -> tuple[int, int]:
        self._batches.append((records, dead))
        seen = sum(count for count, _ in self._batches)
        while seen - self._batches[0][0] >= _WINDOW:
            seen -= self._batches.popleft()[0]
        return seen, sum(count for _, count in self._batches)
