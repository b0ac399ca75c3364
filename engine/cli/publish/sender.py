"""Publishes items to the topic, in order, at their pace, in batches."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from engine.cli.publish.item import Item, stamped
from engine.cli.publish.pace import Clock, Pace, PaceKeeper
from engine.kafka.publisher import Outgoing, Publisher

_BATCH_RECORDS = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_TICK = 0.02  # seconds: items that become due within it form a batch


class Sender:
    """Publishes to one topic. `sent` counts the items that the brokers have acknowledged.

    With `stamp`, detected_at becomes the time of publishing. `deadline` (seconds) bounds one batch;
    `steady` gives monotonic seconds, `clock` epoch seconds. `on_sent` is called after each batch.
    """

    def __init__(
        self,
        *,
        publisher: Publisher,
        topic: str,
        pace: Pace,
        stamp: bool,
        deadline: float,
        steady: Clock = time.monotonic,
        clock: Clock = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.sent = 0
        self.on_sent: Callable[[], None] = lambda: None
        self._publisher = publisher
        self._topic = topic
        self._pace_keeper = PaceKeeper(pace, steady)
        self._stamp = stamp
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._batch: list[Item] = []
        self._bytes = 0

    async def send(self, items: Iterable[Item]) -> None:
        """Publish all items, each when it is due; returns when all are acknowledged.

        If `items` raises, the earlier items are published first. Raises KafkaError,
        MessageTooLargeError, and TimeoutError after the deadline.
        """
        try:
            for item in items:
                wait = self._pace_keeper.wait_before(item)
                if wait > 0:
                    await self._flush()
                    await self._sleep(max(wait, _TICK))
                await self._add(item)
        except ValueError:
            await self._flush()
            raise
        await self._flush()

    async def _add(self, item: Item) -> None:
        self._batch.append(item)
        self._bytes += len(item.value)
        if len(self._batch) >= _BATCH_RECORDS or self._bytes >= _BATCH_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        batch, self._batch, self._bytes = self._batch, [], 0
        if not batch:
            return
        now = self._clock()
        async with asyncio.timeout(self._deadline):
            await self._publisher.publish(
                [
                    Outgoing(self._topic, key, stamped(value, now) if self._stamp else value, [])
                    for key, value, _ in batch
                ]
            )
        self.sent += len(batch)
        self.on_sent()
