"""Commits what is done at once, so that a crash repeats little.

One request at a time, with all partitions in it: what is finished while one is under way leaves
with the next. What is done and not committed still counts as in flight, so that a crash repeats no
more than the bound on that, however slow the group's coordinator is.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from engine.kafka.partition_worker import NotesCommits, PartitionWorker
from engine.kafka.positions import Position
from engine.process.failures import describe, kafka_may_recover
from engine.process.metrics import Metrics

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 0.5


class OffsetCommitter:
    """The commits of one member of a group.

    `spacing` is the least time between two of them; `deadline` (seconds) bounds one. `may_commit`
    says whether the group still knows this member; `topic_of` gives a partition's topic id;
    `on_commit` is called when there is room again.
    """

    def __init__(
        self,
        *,
        consumer: AIOKafkaConsumer,
        role: str,
        metrics: Metrics,
        spacing: float,
        deadline: float,
        may_commit: Callable[[], bool],
        topic_of: Callable[[TopicPartition], str | None],
        on_commit: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._role = role
        self._metrics = metrics
        self._spacing = spacing
        self._deadline = deadline
        self._may_commit = may_commit
        self._topic_of = topic_of
        self._on_commit = on_commit
        self._failing = False
        self._news = asyncio.Event()
        self._committed: dict[TopicPartition, int] = {}

    def note_progress(self) -> None:
        """A worker may have come further."""
        self._news.set()

    async def run(self, workers: Callable[[], Collection[PartitionWorker]]) -> None:
        """Commit whenever there is something to commit, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if await self.commit(list(workers())):
                await asyncio.sleep(self._spacing)
            else:
                self._news.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def commit(self, workers: Collection[PartitionWorker]) -> bool:
        """Commit how far each worker is done; False if that failed.

        A commit that the group refuses is not repeated for long: the partitions are about to be
        revoked, and whoever is next begins where the last commit was.
        """
        offsets = self._uncommitted(workers)
        if not offsets or not self._may_commit():
            return True
        places = {each: Position(at, self._topic_of(each)) for each, at in offsets.items()}
        try:
            async with asyncio.timeout(self._deadline):
                await self._consumer.commit(
                    {each: place.to_commit() for each, place in places.items()}
                )
        except (CommitFailedError, IllegalStateError, TimeoutError) as error:
            self._note_failure("commit refused", error)
        except KafkaError as error:
            if not kafka_may_recover(error):
                raise
            self._note_failure("commit failed, trying again", error)
        else:
            self._failing = False
            self._committed |= {each: at for each, at in offsets.items() if each in self._committed}
            for worker in workers:
                if worker.partition in offsets and isinstance(worker, NotesCommits):
                    worker.note_committed(offsets[worker.partition])
            self._on_commit()
            return True
        return False

    def _note_failure(self, event: str, error: Exception) -> None:
        """Once, until a commit succeeds."""
        self._metrics.kafka_errors.inc()
        if not self._failing:
            log.warning(event, role=self._role, error=describe(error))
        self._failing = True

    def behind(self, worker: PartitionWorker) -> int:
        """How many offsets the worker is done with that are not committed."""
        done, committed = worker.done_offset, self._committed.get(worker.partition)
        return 0 if done is None or committed is None else max(0, done - committed)

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Its worker begins at `offset`, which need not be committed."""
        self._committed[partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        """Its worker has ended."""
        self._committed.pop(partition, None)

    def _uncommitted(self, workers: Collection[PartitionWorker]) -> Mapping[TopicPartition, int]:
        return {
            worker.partition: worker.done_offset
            for worker in workers
            if worker.done_offset is not None
            and worker.done_offset != self._committed.get(worker.partition)
        }
