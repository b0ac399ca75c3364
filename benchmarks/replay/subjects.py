"""What is measured, each in a process of its own: a floor, and the replay over the same records.

A subject prints one JSON line: records, and seconds from the first one to the last.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import msgspec

from benchmarks.subjects import Result, floor
from engine.cli.publish.form import Format
from engine.cli.publish.source import opened
from engine.cli.replay.period import ReplayPeriod
from engine.cli.replay.session import ReplayRequest, perform
from engine.kafka.messages import Detection
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings


async def file_floor(file: Path) -> Result:
    """The least that reads a file of JSON Lines in Python: blocks, lines, decode."""
    decode = msgspec.json.Decoder(Detection).decode
    done, begin, rest = 0, time.perf_counter(), b""
    with opened(file) as source:
        async for block in source.blocks():
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                decode(line)
            done += len(lines)
    if rest:
        decode(rest)
        done += 1
    return {"records": done, "seconds": time.perf_counter() - begin}


async def replay(settings: Settings, file: Path | None) -> Result:
    """The command, against SQL's catalog as it is."""
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
    findings = await perform(settings, request)
    return {"records": findings.decided, "seconds": findings.seconds}


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
    if result["records"] != count:
        raise SystemExit(f"{name} saw {result['records']:,.0f} of {count:,} detections")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
