"""The subjects, each in a process of its own: a floor, and the replay over the same records.

A subject prints one JSON line: records, and seconds from the first ones to the last, by the clock
and of the processor (all threads of the process).
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.subjects import Result, floor
from engine.cli.publish.form import Format
from engine.cli.publish.source import opened
from engine.cli.replay.file_source import FileSource
from engine.cli.replay.kafka_source import KafkaSource
from engine.cli.replay.period import ReplayPeriod
from engine.cli.replay.session import ReplayRequest, perform
from engine.kafka.messages import Detection
from engine.kafka.partition_worker import Records
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings


async def file_floor(file: Path) -> Result:
    """The floor: reads a file of JSON Lines in Python: blocks, lines, decode."""
    decode = msgspec.json.Decoder(Detection).decode
    done, rest = 0, b""
    begin, processor = time.perf_counter(), time.process_time()
    with opened(file) as source:
        async for block in source.blocks():
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                decode(line)
            done += len(lines)
    if rest:
        decode(rest)
        done += 1
    return {
        "records": done,
        "seconds": time.perf_counter() - begin,
        "seconds_processor": time.process_time() - processor,
    }


def _timed(source: Any) -> list[float]:
    """Where the processor's seconds will stand, from the first batch of a source to its end. (The
    command makes the source itself, so its class is patched.)"""
    seconds: list[float] = []
    read = source.batches

    async def batches(self: Any) -> AsyncGenerator[Records, None]:
        begin: float | None = None
        async for records in read(self):
            begin = time.process_time() if begin is None else begin
            yield records
        seconds.append(time.process_time() - (begin or 0.0))

    source.batches = batches
    return seconds


async def replay(settings: Settings, file: Path | None) -> Result:
    """The command with the present catalog in SQL."""
    request = ReplayRequest(
        file=file,
        form=Format.JSONL,
        period=ReplayPeriod(),
        shift=0.0,
        catalogs=(),
        compares=False,
        without_sql=False,
        sends=None,
    )
    timed = _timed(KafkaSource if file is None else FileSource)
    findings = await perform(settings, request)
    return {
        "records": findings.decided,
        "seconds": findings.seconds,
        "seconds_processor": sum(timed),
    }


async def _measured(name: str, file: Path, count: int) -> Result:
    if name == "file-floor":
        return await file_floor(file)
    settings = load_settings()
    if name == "kafka-floor":
        return await floor(settings, count)
    return await replay(settings, file if name == "file" else None)


def main() -> None:
    """Arguments: subject, file, number of records, processor to run on."""
    name, file, count, processor = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    tune_garbage_collector()
    os.sched_setaffinity(0, {int(processor)})
    result = asyncio.run(_measured(name, file, count))
    if name != "kafka-floor" and result["records"] != count:
        raise SystemExit(f"{name} saw {result['records']:,.0f} of {count:,} detections")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
