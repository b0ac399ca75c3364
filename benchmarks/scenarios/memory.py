"""`python -m benchmarks.scenarios.memory`: bytes of Redis for each device that is remembered.

A new device each time is granted its campaigns; Redis' used_memory is read after few devices and
after many. What is kept of a device's last decisions comes on top.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from rich.console import Console

from benchmarks.catalog import BEACONS
from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.lineup import EVERYBODY, TRIGGER
from benchmarks.machine import MachineWatch
from benchmarks.rounds import Rounds
from benchmarks.servers import Servers, servers
from benchmarks.workloads import Workload, udid_of
from catalog.redis_connection import connect_redis
from engine.redis.decision_store import DecisionStore, DeviceDecision
from engine.redis.devices import DeviceKey
from rules.model import Reason, Zone
from rules.stored_decision import StoredDecision

_LEAST_RATE = 1000  # devices a second, below which it is given up
_LEAST_SECONDS = 600.0
_FEWER = 10
_DECISIONS = (1, 10)  # of a device; the default of RECENT_DECISIONS is ten
_SAMPLE = 50_000  # devices whose decisions are kept
_CHUNK = 5000
_EMPTY_SECONDS = 120.0  # Redis takes seconds to forget ten million devices
_CLAIMS_ONLY = EVERYBODY[TRIGGER]._replace(environment={"PROXIMITY_RECENT_DECISIONS": "0"})
_MILLION = 1_000_000


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scenarios.memory", description=__doc__
    )
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--campaigns", type=int, nargs="+", default=[1, 2, 10])
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    found: dict[tuple[int, int], float] = {}
    for campaigns in arguments.campaigns:
        each = asyncio.run(_measure(arguments, campaigns))
        found |= {(campaigns, decisions): size for decisions, size in each.items()}
        console.print(f"  {campaigns} campaigns: {each}", highlight=False)
    findings = Findings(
        name="memory",
        command="python -m benchmarks.scenarios.memory",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(arguments.devices, found)},
        charts=[_chart(found)],
        rounds=[[*variant, size] for variant, size in found.items()],
    )
    finish(console, findings, arguments.json)


async def _measure(arguments: argparse.Namespace, campaigns: int) -> dict[int, float]:
    """Bytes a device, by decisions that are kept of it: what Redis has more of after many devices
    than after few, and what their decisions add to that."""
    many, few = arguments.devices, arguments.devices // _FEWER
    async with servers(arguments.broker) as running:
        runs = {count: await _prepared(running, count, campaigns) for count in (few, many)}
        used = {}
        for count, (rounds, _) in runs.items():
            await rounds.run(_CLAIMS_ONLY)
            used[count] = await _used_memory(running)
        claims = (used[many] - used[few]) / (many - few)
        found = {0: claims}
        for decisions in _DECISIONS:
            found[decisions] = claims + await _of_decisions(running, campaigns, decisions)
        for _, directory in runs.values():
            directory.cleanup()
    return found


async def _of_decisions(running: Servers, campaigns: int, decisions: int) -> float:
    """Bytes of so many decisions of a device. A trigger notes at most 250 new ones a second, which
    fills Redis too slowly to wait for: they are kept as the trigger keeps them."""
    redis = connect_redis(running.redis, timeout=_EMPTY_SECONDS)
    try:
        await redis.flushall()
        store = DecisionStore(redis=redis, prefix="memory:", most=decisions, deadline=60.0)
        before = await _used_memory(running)
        for number in range(decisions):
            for begin in range(0, _SAMPLE, _CHUNK):
                numbers = range(begin, begin + _CHUNK)
                await store.keep([_decision(each, number, campaigns) for each in numbers])
        return (await _used_memory(running) - before) / _SAMPLE
    finally:
        await redis.aclose()


def _decision(device: int, number: int, campaigns: int) -> DeviceDecision:
    """Of one detection of a device, which was granted all campaigns first, and none later."""
    at = time.time() - _SAMPLE + device + number
    reason = Reason.THROTTLED if number else Reason.GRANTED
    first = device % BEACONS * campaigns + 1
    outcomes = {reason.value: list(range(first, first + campaigns))}
    kept = StoredDecision(at, at + 0.1, device % BEACONS + 1, Zone.NEAR, reason.value, outcomes)
    return DeviceDecision(DeviceKey(1, udid_of(device)), kept)


async def _prepared(
    running: Servers, devices: int, campaigns: int
) -> tuple[Rounds, tempfile.TemporaryDirectory[str]]:
    name = f"memory-{devices}-{campaigns}"
    workload = Workload(name, "a new device each time", devices, campaigns)
    patience = _LEAST_SECONDS + devices * campaigns / _LEAST_RATE
    directory = tempfile.TemporaryDirectory()
    # Millions of notifications are counted, and not read back into the memory of this process.
    rounds = Rounds(
        running, workload, devices, Path(directory.name), patience=patience, reads_back=False
    )
    await rounds.prepare(alternatives=False)
    return rounds, directory


async def _used_memory(running: Servers) -> int:
    redis = connect_redis(running.redis)
    try:
        return int((await redis.info("memory"))["used_memory"])
    finally:
        await redis.aclose()


def _sheet(devices: int, found: dict[tuple[int, int], float]) -> Sheet:
    rows = [
        [str(campaigns), str(decisions), f"{size:,.0f}", f"{size * _MILLION / 2**30:,.2f}"]
        for (campaigns, decisions), size in found.items()
    ]
    columns = ["claims of a device", "decisions kept", "bytes a device", "GiB a million devices"]
    return Sheet(f"Redis, {devices:,} devices remembered", columns, rows)


def _chart(found: dict[tuple[int, int], float]) -> Chart:
    bars = [
        Spread([size]).bar(f"{campaigns} claims, {decisions} decisions")
        for (campaigns, decisions), size in found.items()
    ]
    return Chart("Redis: bytes a device", "B", bars, lower=True)


if __name__ == "__main__":
    main()
