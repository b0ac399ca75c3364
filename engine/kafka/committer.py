"""Commits what is done at once, so that a crash repeats little.

One request at a time, with all partitions in it: what is finished while one is under way leaves
with the next. What is done and not committed still counts as in flight, so that a crash repeats no
more than the bound on that, however slow the group's coordinator is.
"""

import asyncio
from collections.abc import Callable, Collection

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from engine.kafka.partition_worker import NotesCommits, PartitionWorker
from engine.kafka.positions import Position
from engine.process.failures import describe
from engine.process.metrics import StepTimer
from engine.process.retry import Backoff
from engine.process.server_errors import ServerErrors

log = structlog.get_logger(__name__)

_COMMITTING = "committing"
_RETRY_SECONDS = 0.5


class AssignedPartition:
    """One assignment of one partition: its worker, its topic, and how far it is committed."""

    def __init__(self, worker: PartitionWorker, position: Position) -> None:
        """The worker begins at `position`, which need not be committed."""
        self.worker = worker
        self.topic_id = position.topic_id
        self._committed = position.offset

    @property
    def partition(self) -> TopicPartition:
        """Topic and number."""
        return self.worker.partition

    @property
    def to_commit(self) -> int | None:
        """The offset to commit; None where that has been done."""
        done = self.worker.done_offset
        return None if done == self._committed else done

    @property
    def uncommitted(self) -> int:
        """How many offsets are done and not committed."""
        return max(0, (self.to_commit or 0) - self._committed)

    def note_committed(self, offset: int) -> None:
        """The group has committed `offset`."""
        self._committed = offset
        if isinstance(self.worker, NotesCommits):
            self.worker.note_committed(offset)


class OffsetCommitter:
    """The commits of one member of a group.

    `spacing` is the least time between two of them; `deadline` (seconds) bounds one. `may_commit`
    says whether the group still knows this member; `on_commit` is called after each success.
    """

    def __init__(
        self,
        *,
        consumer: AIOKafkaConsumer,
        role: str,
        errors: ServerErrors,
        step: StepTimer,
        spacing: float,
        deadline: float,
        may_commit: Callable[[], bool],
        on_commit: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._role = role
        self._errors = errors
        self._step = step
        self._spacing = spacing
        self._deadline = deadline
        self._may_commit = may_commit
        self._on_commit = on_commit
        self._is_refused = False
        self._progress = asyncio.Event()

    def note_progress(self) -> None:
        """A worker may have come further."""
        self._progress.set()

    async def run(self, partitions: Callable[[], Collection[AssignedPartition]]) -> None:
        """Commit whenever there is something to commit, until cancelled."""
        backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS)
        while True:
            await self._progress.wait()
            self._progress.clear()
            if await self.commit(list(partitions())):
                await asyncio.sleep(self._spacing)
            else:
                self._progress.set()
                await backoff.pause()

    async def commit(self, partitions: Collection[AssignedPartition]) -> bool:
        """Commit how far each partition is done; False if that failed.

        A commit that the group refuses is not repeated for long: the partitions are about to be
        revoked, and the next owner begins where the last commit was.
        """
        offsets = {each: each.to_commit for each in partitions}
        positions = {
            each.partition: Position(offset, each.topic_id).to_commit()
            for each, offset in offsets.items()
            if offset is not None
        }
        if not positions or not self._may_commit():
            return True
        try:
            with self._step("commit"):
                async with asyncio.timeout(self._deadline):
                    await self._consumer.commit(positions)
        except (CommitFailedError, IllegalStateError) as error:
            self._note_refusal(error)
            return False
        except (KafkaError, TimeoutError) as error:
            if not self._errors.may_recover(error):
                raise
            self._errors.failed(error, _COMMITTING)
            return False
        self._errors.answered(_COMMITTING)
        self._is_refused = False
        for each, offset in offsets.items():
            if offset is not None:
                each.note_committed(offset)
        self._on_commit()
        return True

    def _note_refusal(self, error: Exception) -> None:
        """Log the first one until a commit succeeds."""
        self._errors.inc()
        if not self._is_refused:
            log.warning("commit refused", role=self._role, error=describe(error))
        self._is_refused = True
