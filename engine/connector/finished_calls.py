"""Stores which calls after the committed offset are finished, so that a crash repeats few.

Calls finish in any order, and a commit covers no gaps: one call that waits for its service's
breaker can hold the committed offset back for minutes. Redis stores the calls that finished after
it. Without Redis they are repeated under the same id, and the customer's service gets them twice.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from redis.asyncio import Redis, RedisCluster

from engine.process.failures import redis_may_recover
from engine.process.metrics import Metrics

_PAUSE_SECONDS = 1.0


# Whether the record of an offset and id (None if it is no call) was finished before.
WasFinished = Callable[[int, str | None], bool]


class PartitionProgress(NamedTuple):
    """A partition's finished calls (ids by offset), and the offset to commit."""

    finished: Mapping[int, str]
    done: int | None = None


class FinishedCallStore:
    """One sorted set for each partition: `<offset>:<id>`, by offset. `life`, `deadline` in s.

    The id guards against a topic that was deleted and created again: its offsets start at 0.
    """

    def __init__(
        self,
        *,
        redis: Redis | RedisCluster,
        prefix: str,
        life: float,
        deadline: float,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._life_ms = int(life * 1000)
        self._deadline = deadline
        self._metrics = metrics
        self._clock = clock
        self._redis_down_until = float("-inf")

    async def was_finished(self, partition: TopicPartition) -> WasFinished:
        """A test for finished calls, as of now.

        It is False for all calls if Redis does not answer in time.
        """
        finished = await self.load(partition)
        return lambda offset, id_: id_ is not None and finished.get(offset) == id_

    async def load(self, partition: TopicPartition) -> dict[int, str]:
        """The ids of finished calls by their offset; empty if Redis does not answer in time."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        pipeline.zrange(self._key(partition), 0, -1)
        answers = await self._run(pipeline)
        finished: dict[int, str] = {}
        for member in answers[0] if answers else ():
            offset, _, id_ = member.decode().partition(":")
            finished[int(offset)] = id_
        return finished

    async def save(self, progress: Mapping[TopicPartition, PartitionProgress]) -> None:
        """Add finished calls, and drop those before `done`. Skipped while Redis does not answer."""
        if self._clock() < self._redis_down_until:
            return
        pipeline: Any = self._redis.pipeline(transaction=False)
        for partition, made in progress.items():
            key = self._key(partition)
            members = {f"{offset}:{id_}": offset for offset, id_ in made.finished.items()}
            pipeline.zadd(key, members)
            if made.done is not None:
                pipeline.zremrangebyscore(key, "-inf", f"({made.done}")
            pipeline.pexpire(key, self._life_ms)
        await self._run(pipeline)

    async def _run(self, pipeline: Any) -> list[Any] | None:
        try:
            async with asyncio.timeout(self._deadline):
                answers = list(await pipeline.execute())
        except Exception as error:  # temporary errors are ignored, others stop the process
            if not redis_may_recover(error):
                raise
            self._metrics.redis_errors.failed(error, "finished calls")
            self._redis_down_until = self._clock() + _PAUSE_SECONDS
            return None
        self._metrics.redis_errors.answered("finished calls")
        return answers

    def _key(self, partition: TopicPartition) -> str:
        return f"{self._prefix}finished:{partition.topic}:{partition.partition}"
