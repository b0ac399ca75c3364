"""The subjects, each in a process of its own: the floor, and the trigger itself.

A subject prints one JSON line: records, seconds from the first tenth of the records to the last
one done, and what it counted."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine

import msgspec
from aiokafka import AIOKafkaConsumer

from benchmarks.peak import peak_bytes
from engine.kafka.client import connection_options
from engine.kafka.messages import Detection
from engine.kafka.producer import Publisher
from engine.process.lifecycle import run_services, tune_garbage_collector
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.wiring.parts import ProcessParts, open_stores
from engine.wiring.trigger import build_trigger

_DEADLINE = 3600.0  # seconds; the process that started it ends it earlier

Result = dict[str, float]


async def floor(settings: Settings, count: int) -> Result:
    """The floor of a consumer in Python: only getmany and decode."""
    decode = msgspec.json.Decoder(Detection).decode
    consumer = AIOKafkaConsumer(
        f"{settings.topic_prefix}detections",
        **connection_options(settings),
        group_id=f"{settings.group_prefix}floor",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    done, watch = 0, _Stopwatch(count)
    try:
        async with asyncio.timeout(_DEADLINE):
            while done < count:
                batches = await consumer.getmany(timeout_ms=100, max_records=5000)
                for records in batches.values():
                    for record in records:
                        decode(record.value)
                    done += len(records)
                watch.note(done)
    finally:
        await consumer.stop()
    return watch.result()


async def trigger(settings: Settings, count: int) -> Result:
    """The product: decode, resolve, decide, claim, publish, commit."""
    metrics = Metrics()
    stop = asyncio.Event()
    publisher = Publisher.from_settings(settings)
    async with open_stores(settings) as stores:
        role = build_trigger(
            ProcessParts(settings=settings, stores=stores, publisher=publisher, metrics=metrics)
        )
        await publisher.start()
        result: Result = {}

        async def watch() -> None:
            partitions = role.consumer.partitions
            result.update(
                await _time(
                    metrics, count, lambda: any(each.worker.pending for each in partitions.values())
                )
            )
            stop.set()
            await asyncio.Event().wait()

        try:
            async with asyncio.timeout(_DEADLINE):
                await run_services(
                    foreground={"trigger": role.consumer.run(stop)},
                    background={name: work() for name, work in role.background.items()}
                    | {"measurement": watch()},
                    stop=stop,
                )
        finally:
            await publisher.close()
    return result


class _Stopwatch:
    """Measures after the first tenth of the records, which warms caches and connections up."""

    def __init__(self, count: int) -> None:
        self._warm = count // 10
        self._first = self._done = 0

    def note(self, done: int) -> None:
        """So many records are done; the measurement begins with the first tenth."""
        self._done = done
        if done >= self._warm and not self._first:
            self._first = done
            self._begin, self._processor = time.perf_counter(), time.process_time()

    def result(self) -> Result:
        """The result up to now."""
        return {
            "records": self._done - self._first,
            "seconds": time.perf_counter() - self._begin,
            "seconds_processor": time.process_time() - self._processor,
        }


async def _time(metrics: Metrics, count: int, is_busy: Callable[[], bool]) -> Result:
    """From the first tenth on to the last acknowledgement; progress is read from the metrics."""
    watch = _Stopwatch(count)
    while True:
        done = int(_total(metrics, "proximity_detections_total"))
        watch.note(done)
        if done >= count and not is_busy():
            result = watch.result()
            result["notifications"] = _total(metrics, "proximity_notifications_total")
            steps = {
                f"seconds_{sample.labels['step']}": sample.value
                for family in metrics.batch_seconds.collect()
                for sample in family.samples
                if sample.name == "proximity_batch_seconds_sum"
            }
            return result | steps
        await asyncio.sleep(0.002)


def _total(metrics: Metrics, name: str) -> float:
    family = {
        "proximity_detections_total": metrics.detections,
        "proximity_notifications_total": metrics.notifications,
    }[name]
    return sum(
        sample.value for each in family.collect() for sample in each.samples if sample.name == name
    )


_SUBJECTS: dict[str, Callable[[Settings, int], Coroutine[None, None, Result]]] = {
    "floor": floor,
    "trigger": trigger,
}


def main() -> None:
    """Arguments: subject, number of records, processor to run on (or -1)."""
    name, count, processor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tune_garbage_collector()
    if processor >= 0:
        os.sched_setaffinity(0, {processor})
    result = asyncio.run(_SUBJECTS[name](load_settings(), count))
    result["peak_bytes"] = peak_bytes()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
