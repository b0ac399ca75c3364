"""`python -m benchmarks.scenarios.memory`: bytes of Redis for each device that is remembered.

A new device each time is granted one campaign; Redis' used_memory is read before and after, with
and without what is kept of a device's last decisions.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.lineup import EVERYBODY, TRIGGER, Subject
from benchmarks.machine import MachineWatch
from benchmarks.rounds import Rounds
from benchmarks.servers import Servers, servers
from benchmarks.workloads import Workload
from catalog.redis_connection import connect_redis

_LEAST_RATE = 1000  # devices a second, below which it is given up
_LEAST_SECONDS = 600.0
_FEWER = 10
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
    """Bytes a device, by RECENT_DECISIONS: what Redis has more of after many devices than after
    few."""
    many, few = arguments.devices, arguments.devices // _FEWER
    found = {}
    async with servers(arguments.broker) as running:
        runs = {count: await _prepared(running, count, campaigns) for count in (few, many)}
        for decisions in (0, 10):
            used = {}
            for count, (rounds, _) in runs.items():
                await rounds.run(_keeping(decisions))
                used[count] = await _used_memory(running)
            found[decisions] = (used[many] - used[few]) / (many - few)
        for _, directory in runs.values():
            directory.cleanup()
    return found


async def _prepared(
    running: Servers, devices: int, campaigns: int
) -> tuple[Rounds, tempfile.TemporaryDirectory[str]]:
    name = f"memory-{devices}-{campaigns}"
    workload = Workload(name, "a new device each time", devices, campaigns)
    patience = _LEAST_SECONDS + devices * campaigns / _LEAST_RATE
    directory = tempfile.TemporaryDirectory()
    rounds = Rounds(running, workload, devices, Path(directory.name), patience=patience)
    await rounds.prepare(alternatives=False)
    return rounds, directory


def _keeping(decisions: int) -> Subject:
    environment = {"PROXIMITY_RECENT_DECISIONS": str(decisions)}
    return EVERYBODY[TRIGGER]._replace(environment=environment)


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
    columns = ["claims of a device", "RECENT_DECISIONS", "bytes a device", "GiB a million devices"]
    return Sheet(f"Redis, {devices:,} devices remembered", columns, rows)


def _chart(found: dict[tuple[int, int], float]) -> Chart:
    bars = [
        Spread([size]).bar(f"{campaigns} claims, RECENT_DECISIONS={decisions}")
        for (campaigns, decisions), size in found.items()
    ]
    return Chart("Redis: bytes a device", "B", bars, lower=True)


if __name__ == "__main__":
    main()
