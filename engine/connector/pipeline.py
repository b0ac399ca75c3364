"""The role `connector`: the way of a call, from the record to the notification.

decode -> skip what a crash repeats -> look the devices up -> ask the customer's service -> publish
-> settle the claim -> commit. Records are taken in by the batch; from the question on each call
goes its own way, and only what is finished without a gap is committed.
"""

import copy
from collections.abc import Callable, Container

from aiokafka import TopicPartition

from connectors.model import Failed, Fault, Result
from connectors.worker import Worker as CallWorker
from engine.connector.call_partition import CallPartition
from engine.connector.call_request import Asked, decode_call, question
from engine.connector.call_result import Answered
from engine.connector.endpoint_opener import EndpointError, EndpointOpener
from engine.connector.finished_calls import FinishedCalls
from engine.connector.result_publisher import ROLE, Departure, Departures
from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.decoding import decode_records
from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics, StepTimer
from engine.process.settings import Settings
from engine.redis.devices import NOT_ASKED, DeviceLookup, DeviceRecord

__all__ = ["ROLE", "Connector"]


class Connector:
    """What the partitions of one process share. Implements TakeIn for all of them."""

    def __init__(
        self,
        *,
        settings: Settings,
        calls: CallWorker,
        opener: EndpointOpener,
        devices: DeviceLookup,
        departures: Departures,
        finished: FinishedCalls,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._opener = opener
        self._devices = devices
        self._departures = departures
        self._finished = finished
        self._finished_before: Container[int] | None = None
        self._limit = DeadLetterLimit(
            share=settings.dead_letter_share, run=settings.dead_letter_run
        )
        self._metrics = metrics
        self._step = StepTimer(metrics, ROLE)

    def departing_with(
        self, departures: Departures, finished_before: Container[int]
    ) -> "Connector":
        """The same for one assignment whose calls leave in transactions of its own; all else is
        shared. Kafka itself says what is finished: `finished_before` are offsets."""
        other = copy.copy(self)
        other._departures = departures  # noqa: SLF001  # our own
        other._finished_before = finished_before  # noqa: SLF001
        return other

    def for_partition(
        self, partition: TopicPartition, on_progress: Callable[[], None]
    ) -> CallPartition:
        """The worker for one assignment of one partition."""
        return CallPartition(partition, role=self, calls=self._calls, on_progress=on_progress)

    async def recall(self, partition: TopicPartition) -> dict[int, str]:
        """What a crash would repeat: offsets and ids of calls that are finished already."""
        return {} if self._finished_before is not None else await self._finished.load(partition)

    async def take_in(self, partition: CallPartition, records: Records) -> None:
        """Begin every call of a batch. Raises what no retry can mend."""
        with self._step("decode"):
            asked, dead, _ = decode_records(records, decode_call, self._limit)
        with self._step("devices"):
            known = await self._devices.find([each.device_key for each in asked])
        partition.begun([record.offset for record in records])
        before: Container[int] = self._finished_before or ()
        repeated = []
        for letter in dead:
            if letter.record.offset in before:
                repeated.append(letter.record.offset)
            else:
                self._departures.add(Departure(partition, letter.record.offset, letter))
        for each in asked:
            offset = each.record.offset
            if offset in before or partition.finished_before.get(offset) == each.message.id:
                repeated.append(offset)
            else:
                self._ask(partition, each, known[each.device_key])
        partition.finished(repeated)
        self._metrics.batch_size.observe(len(records))

    def _ask(self, partition: CallPartition, asked: Asked, known: DeviceRecord | None) -> None:
        """Hand one call over; its result departs when it comes."""
        offset = asked.record.offset
        answerable = None if known is NOT_ASKED else known

        def on_result(result: Result) -> None:
            job = partition.jobs.pop(offset, None)
            if partition.is_open:
                answered = Answered(asked, answerable, result, None if job is None else job.tries)
                self._departures.add(Departure(partition, offset, answered))

        endpoint = asked.message.connector
        if endpoint is None:
            on_result(Failed(Fault.NO_CONNECTOR, "the company has no connector"))
            return
        try:
            opened = self._opener.open(endpoint)
        except EndpointError as error:
            on_result(Failed(Fault.SECRET, str(error)))
            return
        call = question(asked, opened, known, self._settings.max_detection_age)
        job = self._calls.submit(call, on_result)
        if not job.ended:
            partition.jobs[offset] = job
