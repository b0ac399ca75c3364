"""The role `connector`: the way of a call, from its record to its notification, top to bottom.

    receive         decode a batch, skip calls that finished before a crash, look up devices
    schedule        pass each call to `connectors.scheduler`; from here on calls are independent
    publish         the notification, or a dead letter
    update claims   a failed call gives its claim back, a declined one shortens it
    remember        store in Redis the calls that finished after the offset to commit
    finish          the consumer commits the offset before which all calls are finished

In this order a crash between two steps repeats calls and loses none. A repeated call has the same
id and updates no claim that it does not own. With DELIVERY=exactly_once the steps after `schedule`
are in engine/connector/transactional_results.py.
"""

from aiokafka import TopicPartition

from connectors.errors import EndpointError
from connectors.model import CallFault, CallResult, Failed
from connectors.scheduler import CallScheduler
from engine.connector.call_partition import CallPartition, FinishedRecord, ResultSink
from engine.connector.call_result import CompletedCall, UndecodableRecord
from engine.connector.finished_calls import FinishedCallStore, PartitionProgress, WasFinished
from engine.connector.intake import EndpointDecryptor, ReceivedCall, build_call, decode_call
from engine.connector.result_publisher import (
    ROLE,
    BatchQueue,
    ResultMemory,
    ResultPublisher,
    run_steps,
)
from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.decoding import decode_records
from engine.kafka.partition_worker import Records
from engine.kafka.trace_context import traceparent_of
from engine.kafka.tracing import Attributes, PassingTracer, Tracer
from engine.process.metrics import Metrics, StepTimer
from engine.process.settings import Settings
from engine.redis.claims import ClaimUpdate
from engine.redis.devices import NO_ANSWER, DeviceLookup, DeviceRecord


class ConnectorRole:
    """Receives and schedules the calls of all partitions of a process."""

    def __init__(
        self,
        *,
        settings: Settings,
        scheduler: CallScheduler,
        decryptor: EndpointDecryptor,
        devices: DeviceLookup,
        metrics: Metrics,
        tracer: Tracer | None = None,
    ) -> None:
        self._fresh_seconds = settings.max_detection_age
        self._scheduler = scheduler
        self._decryptor = decryptor
        self._devices = devices
        self._limit = DeadLetterLimit.from_settings(settings)
        self._metrics = metrics
        self._step = StepTimer(metrics, ROLE)
        self._tracer = tracer or PassingTracer()

    async def receive(self, partition: CallPartition, records: Records) -> None:
        """Start every call of a batch. Raises permanent errors."""
        with self._step("decode"):
            calls, letters, _ = decode_records(records, decode_call, self._limit)
        with self._step("devices"):
            known = await self._devices.find([call.device_key for call in calls])
        partition.begin([record.offset for record in records])
        repeated = []
        for letter in letters:
            if partition.was_finished(letter.record.offset, None):
                repeated.append(letter.record.offset)
            else:
                partition.complete(UndecodableRecord(letter))
        for call in calls:
            if partition.was_finished(call.record.offset, call.message.id):
                repeated.append(call.record.offset)
            else:
                self._schedule(partition, call, known[call.device_key])
        partition.finish_offsets(repeated)
        self._metrics.batch_size.observe(len(records))

    def _schedule(
        self, partition: CallPartition, received: ReceivedCall, known: DeviceRecord | None
    ) -> None:
        """Schedule one call; its result completes the record."""
        offset = received.record.offset
        device = None if known is NO_ANSWER else known
        span = self._tracer.begin("proximity.connector", received.record.headers, _about(received))

        def on_result(result: CallResult) -> None:
            scheduled = partition.scheduled.pop(offset, None)
            tries = None if scheduled is None else scheduled.tries
            completed = CompletedCall(received, device, result, tries, span.headers)
            span.end(completed.outcome)
            partition.complete(completed)

        endpoint = received.message.connector
        if endpoint is None:
            on_result(Failed(CallFault.NO_CONNECTOR, "the company has no connector"))
            return
        try:
            decrypted = self._decryptor.decrypt(endpoint)
        except EndpointError as error:
            on_result(Failed(CallFault.SECRET, str(error)))
            return
        traceparent = traceparent_of(span.headers)
        call = build_call(received, decrypted, known, self._fresh_seconds, traceparent)
        scheduled = self._scheduler.submit(call, on_result)
        if not scheduled.ended:
            partition.scheduled[offset] = scheduled


def _about(received: ReceivedCall) -> Attributes:
    """The attributes of a call's span: ids of the catalog, and no personal data."""
    message = received.message
    return {
        "messaging.kafka.source.partition": received.record.partition,
        "messaging.kafka.message.offset": received.record.offset,
        "proximity.company": message.company.id,
        "proximity.campaign": message.campaign.id,
        "proximity.notification": message.id,
    }


class AtLeastOnceResults(ResultSink):
    """Handles the results of all partitions of a process. `run` must be running.

    `run` raises permanent errors. No step waits for a later one: while Redis is down results are
    still published.
    """

    def __init__(
        self,
        *,
        steps: ResultPublisher,
        publisher: DeadLetterPublisher,
        finished_calls: FinishedCallStore,
        memory: ResultMemory,
    ) -> None:
        self._steps = steps
        self._publisher = publisher
        self._finished_calls = finished_calls
        self._memory = memory
        self._to_publish: BatchQueue[FinishedRecord] = BatchQueue()
        self._to_update: BatchQueue[tuple[FinishedRecord, ClaimUpdate]] = BatchQueue()
        self._to_finish: BatchQueue[FinishedRecord] = BatchQueue()

    async def load_finished(self, partition: TopicPartition) -> WasFinished:
        return await self._finished_calls.was_finished(partition)

    def add(self, finished: FinishedRecord) -> None:
        self._memory.take(finished.completion.content_size)
        self._to_publish.put(finished)

    async def run(self) -> None:
        """Run the steps until cancelled."""
        await run_steps(
            self._to_publish.run(self._publish),
            self._to_update.run(self._update_claims),
            self._to_finish.run(self._remember_and_finish),
        )

    async def _publish(self, batch: list[FinishedRecord]) -> None:
        with self._steps.step("publish"):
            published = await self._steps.publish(self._publisher, batch)
        self._memory.give_back(sum(finished.completion.content_size for finished in batch))
        self._steps.count(published)
        for finished in published:
            update = finished.completion.claim_update()
            if update is None:
                self._to_finish.put(finished)
            else:
                self._to_update.put((finished, update))

    async def _update_claims(self, batch: list[tuple[FinishedRecord, ClaimUpdate]]) -> None:
        await self._steps.update_claims([update for _, update in batch])
        self._to_finish.put(*(finished for finished, _ in batch))

    async def _remember_and_finish(self, batch: list[FinishedRecord]) -> None:
        ids: dict[CallPartition, dict[int, str]] = {}
        for finished in batch:
            ids.setdefault(finished.partition, {})[finished.offset] = finished.completion.id
        await self._finished_calls.save(
            {
                partition.partition: PartitionProgress(by_offset, partition.done_offset)
                for partition, by_offset in ids.items()
            }
        )
        for partition, by_offset in ids.items():
            partition.finish_offsets(list(by_offset))
