"""The trigger, in a process of its own. Arguments: `trigger`, and the number of records.

It prints one JSON line: records, seconds from the first tenth of the records, which warms caches
and connections up, to the last acknowledgement, and what it counted."""

import asyncio
import json
import sys
import time

from prometheus_client import Counter

from engine.kafka.producer import Publisher
from engine.process.lifecycle import run_services, tune_garbage_collector
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.wiring.parts import ProcessParts, open_stores
from engine.wiring.trigger import build_trigger
from tests.servers.waiting import eventually

_DEADLINE = 3600.0  # the process that started this one ends it earlier


async def trigger(settings: Settings, count: int) -> dict[str, float]:
    """Decode, resolve, decide, claim, publish, commit, until `count` records are done."""
    metrics, stop, result = Metrics(), asyncio.Event(), dict[str, float]()
    publisher = Publisher(settings)
    async with open_stores(settings) as stores:
        parts = ProcessParts(settings=settings, stores=stores, publisher=publisher, metrics=metrics)
        role = build_trigger(parts)

        def decided() -> float:
            return _total(metrics.detections)

        def pending() -> bool:
            return any(each.worker.pending for each in role.consumer.partitions.values())

        async def watch() -> None:
            await eventually(lambda: decided() >= count // 10, deadline=_DEADLINE)
            first, begin, processor = decided(), time.perf_counter(), time.process_time()
            await eventually(lambda: decided() >= count and not pending(), deadline=_DEADLINE)
            result["records"] = decided() - first
            result["seconds"] = time.perf_counter() - begin
            result["seconds_processor"] = time.process_time() - processor
            stop.set()
            await asyncio.Event().wait()

        await publisher.start()
        try:
            await run_services(
                foreground={"trigger": role.consumer.run(stop)},
                background={name: work() for name, work in role.background.items()}
                | {"measurement": watch()},
                stop=stop,
            )
        finally:
            await publisher.close()
    steps = [each for family in metrics.batch_seconds.collect() for each in family.samples]
    return result | {
        "notifications": _total(metrics.notifications),
        **{f"seconds_{s.labels['step']}": s.value for s in steps if s.name.endswith("_sum")},
    }


def _total(counter: Counter) -> float:
    samples = [sample for family in counter.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


if __name__ == "__main__":
    tune_garbage_collector()
    print(json.dumps(asyncio.run(trigger(load_settings(), int(sys.argv[2])))))
