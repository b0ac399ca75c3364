"""The subjects, each in a process of its own: a bare COPY loop, and the recorder itself.

A subject prints one JSON line: rows of the trace, seconds from the first of them to the last, and
what the time was spent on.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import asyncpg
from sqlalchemy import make_url

from benchmarks.peak import peak_bytes
from catalog.database import open_database
from engine.kafka.publisher import Publisher
from engine.process.lifecycle import run_services, tune_garbage_collector
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.recorder.postgresql_retention import PostgresRetentionStore
from engine.recorder.retention import Retention
from engine.wiring.recorder import build_recorder
from engine.wiring.role import ProcessParts
from engine.wiring.stores import open_stores

_DEADLINE = 600.0
_COLUMNS = ("device_id", "venue_id", "beacon_id", "status", "create_on", "ip")

Result = dict[str, float]


async def recorder(settings: Settings, count: int) -> Result:
    """The product: decode, look up, write devices, traces, statistics and the offset, commit."""
    metrics = Metrics()
    stop = asyncio.Event()
    publisher = Publisher.from_settings(settings)
    async with open_stores(settings) as stores:
        await _make_days(settings)
        parts = ProcessParts(settings=settings, stores=stores, publisher=publisher, metrics=metrics)
        role = build_recorder(parts)
        await publisher.start()
        result: Result = {}

        async def watch() -> None:
            result.update(await _time(metrics, count))
            stop.set()
            await asyncio.Event().wait()

        try:
            async with asyncio.timeout(_DEADLINE):
                await run_services(
                    foreground={"recorder": role.consumer.run(stop)},
                    background={"measurement": watch()},
                    stop=stop,
                )
        finally:
            await publisher.close()
    return result


async def copy(settings: Settings, _count: int) -> Result:
    """The floor, which writes the same rows: they are read into memory, the table is emptied, and
    they are copied back in batches, one transaction each."""
    url = make_url(settings.database_url.get_secret_value())
    connection = await asyncpg.connect(url.render_as_string(hide_password=False))
    try:
        found = await connection.fetch(f"SELECT {', '.join(_COLUMNS)} FROM detection_trace")  # noqa: S608
        rows = [tuple(row) for row in found]
        await connection.execute("TRUNCATE detection_trace")
        begin, cpu = time.perf_counter(), time.process_time()
        async for batch in _batches(rows, settings.batch_records):
            await connection.copy_records_to_table(
                "detection_trace", records=batch, columns=_COLUMNS
            )
        seconds, processor = time.perf_counter() - begin, time.process_time() - cpu
        assert await connection.fetchval("SELECT count(*) FROM detection_trace") == len(rows)
    finally:
        await connection.close()
    return {"rows": len(rows), "seconds": seconds, "seconds_processor": processor}


async def _batches(rows: list[Any], size: int) -> AsyncIterator[list[Any]]:
    for begin in range(0, len(rows), size):
        yield rows[begin : begin + size]


async def _make_days(settings: Settings) -> None:
    """Write the devices, as a recorder that has run for a while finds them."""
    database = open_database(settings.database_url.get_secret_value())
    store = PostgresRetentionStore(database.engine)
    await Retention(
        store, days=1, max_age=600.0, clock=lambda: datetime.now(UTC), clocks={}
    ).run_once()
    await database.close()


async def _time(metrics: Metrics, count: int) -> Result:
    """From the first transaction on to the last row; progress is read from the metrics."""
    begin = 0.0
    while True:
        done = _rows(metrics)
        if done and not begin:
            begin, first, cpu = time.perf_counter(), done, time.process_time()
        if done and done >= count:
            seconds = time.perf_counter() - begin
            steps = {
                f"seconds_{sample.labels['step']}": sample.value
                for family in metrics.batch_seconds.collect()
                for sample in family.samples
                if sample.name == "proximity_batch_seconds_sum"
            }
            processor = time.process_time() - cpu
            peak_mib = peak_bytes() / 1024 / 1024
            counts = {"rows": done - first, "seconds": seconds, "peak_mib": peak_mib}
            return counts | steps | {"seconds_processor": processor}
        await asyncio.sleep(0.002)


def _rows(metrics: Metrics) -> float:
    """The trace rows so far. Only this metric is collected: all of them would take a third of the
    recorder's processor time."""
    return sum(
        sample.value
        for family in metrics.recorder_rows.collect()
        for sample in family.samples
        if sample.labels == {"table": "detection_trace"} and sample.name.endswith("_total")
    )


_SUBJECTS: dict[str, Callable[[Settings, int], Coroutine[None, None, Result]]] = {
    "copy": copy,
    "recorder": recorder,
}


def main() -> None:
    """Arguments: subject, number of records, processor to run on (or -1)."""
    name, count, processor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tune_garbage_collector()
    if processor >= 0:
        os.sched_setaffinity(0, {processor})
    print(json.dumps(asyncio.run(_SUBJECTS[name](load_settings(), count))))


if __name__ == "__main__":
    main()
