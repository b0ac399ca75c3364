"""Reads from the brokers how long the topics keep a message."""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import structlog
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

from catalog.erasure import TopicRetention
from engine.kafka.broker_connection import any_broker
from engine.kafka.topics import Topics
from engine.process.settings import Settings

log = structlog.get_logger(__name__)

_TOPIC = 2
_NOT_THERE = 3
_KEYS = ("cleanup.policy", "retention.ms", "segment.ms")
_DEADLINE = 5.0
_KNOWN_SECONDS = 600.0
_PAUSE_SECONDS = 30.0  # after a failure
_UNKNOWN = TopicRetention(is_known=False)


class RetentionReader:
    """Reads the configuration of every topic of the settings; callers share one request."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._read_at = float("-inf")
        self._answer = _UNKNOWN
        self._reading: asyncio.Task[None] | None = None

    async def read(self) -> TopicRetention:
        """The longest time of all topics, cached for ten minutes.

        Unknown if no broker answers within 5 s, or this login may not see it.
        """
        kept = _KNOWN_SECONDS if self._answer.is_known else _PAUSE_SECONDS
        if self._clock() - self._read_at > kept:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._fetch(), name="retention of topics")
            # The request goes on until its own deadlines: a connection that is cancelled while it
            # is being made stays open for ever.
            await asyncio.wait([self._reading], timeout=_DEADLINE)
            if not self._reading.done():
                return _UNKNOWN
        return self._answer

    async def _fetch(self) -> None:
        names = Topics.of(self._settings).all()
        try:
            async with any_broker(self._settings) as connection:
                resources = [(_TOPIC, name, list(_KEYS)) for name in names]
                response = await connection.send(DescribeConfigsRequest(resources))
            self._answer = longest_retention(response.to_object()["resources"])
        except (KafkaError, OSError, TimeoutError, NotImplementedError) as error:
            # (aiokafka raises NotImplementedError if the broker lacks the request.)
            log.info("Kafka does not report its retention", error=type(error).__name__)
            self._answer = _UNKNOWN
        self._read_at = self._clock()


def longest_retention(resources: Iterable[Any]) -> TopicRetention:
    """How long the topics keep a message at most.

    A segment is deleted when its newest message is `retention.ms` old, and its oldest one may be
    older by `segment.ms`.
    """
    longest = timedelta()
    for resource in resources:
        if resource["error_code"] == _NOT_THERE:
            continue
        found = {each["config_names"]: each["config_value"] for each in resource["config_entries"]}
        if resource["error_code"] or not set(_KEYS) <= set(found):
            return _UNKNOWN
        retention = int(found["retention.ms"])
        if retention < 0 or "delete" not in found["cleanup.policy"]:
            return TopicRetention(is_known=True)
        kept = timedelta(milliseconds=retention + int(found["segment.ms"]))
        longest = max(longest, kept)
    return TopicRetention(is_known=True, longest=longest)
