"""`python -m benchmarks.live`: the cost of the live view for the trigger, closed and open.

Rounds of the workload dwell: no page is open; a page watches the company of all detections, as the
console does; a page watches another company, which has none. Each is a process of its own on one
processor, as in `python -m benchmarks`.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from redis.exceptions import RedisError
from rich.console import Console

from benchmarks.figures import Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.lineup import EVERYBODY, TRIGGER
from benchmarks.machine import MachineWatch
from benchmarks.report import Result, cost, rate
from benchmarks.rounds import Rounds, SubjectError
from benchmarks.servers import servers
from benchmarks.workloads import workloads
from catalog.redis_connection import connect_redis
from engine.process.cancelling import cancel
from engine.redis.company_watch import CompanyWatch
from engine.redis.tail_store import TailStore

WORKLOAD = "dwell"
CLOSED = "closed"
# The company at which a page looks; all detections are of the first.
WATCHED = {CLOSED: None, "open": 1, "open, another company": 2}
_POLL_SECONDS = 1.0


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--records", type=int, default=600_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=7, help="rounds; medians are printed")
    parser.add_argument(
        "--broker",
        default="apache",
        help="embedded, apache (starts one: needs Java and Kafka's jars), or host:port",
    )
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    if watch.warning:
        console.print(watch.warning)
    measured = asyncio.run(_measure(arguments, console))
    findings = Findings(
        name="live",
        command="python -m benchmarks.live",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(measured)},
        rounds=measured,
    )
    finish(console, findings, arguments.json)


async def _measure(arguments: argparse.Namespace, console: Console) -> dict[str, list[Result]]:
    measured: dict[str, list[Result]] = {name: [] for name in WATCHED}
    workload = workloads(arguments.records)[WORKLOAD]
    async with servers(arguments.broker) as running:
        with tempfile.TemporaryDirectory() as directory:
            rounds = Rounds(running, workload, arguments.records, Path(directory))
            await rounds.prepare(alternatives=False)
            for number in range(arguments.rounds):
                first = number % len(WATCHED)
                names = list(WATCHED)
                for name in (*names[first:], *names[:first]):
                    async with _watching(running.redis, WATCHED[name]) as seen:
                        result = await rounds.run(EVERYBODY[TRIGGER])
                    result["seen"] = len(seen)
                    if bool(seen) != (WATCHED[name] == 1):
                        raise SubjectError(f"{name}: {len(seen)} decisions were seen")
                    measured[name].append(result)
                    line = f"{rate(result):,.0f}/s, {cost(result):.2f} us of the processor each"
                    line_text = f"  round {number + 1}: {name} {line}; seen {len(seen):,}"
                    console.print(line_text, highlight=False)
    return measured


@asynccontextmanager
async def _watching(redis_url: str, company: int | None) -> AsyncIterator[list[object]]:
    """A page that polls once a second while it is open; gives the decisions that it received."""
    seen: list[object] = []
    if company is None:
        yield seen
        return
    redis = connect_redis(redis_url)
    page = CompanyWatch(TailStore(redis=redis, prefix=f"{WORKLOAD}:", deadline=5.0))

    async def poll() -> None:
        after = None
        while True:
            with suppress(RedisError, OSError, TimeoutError):  # it is emptied between rounds
                found = await page.decisions(company, after)
                if found is not None:
                    after = found.after
                    seen.extend(found.decisions)
            await asyncio.sleep(_POLL_SECONDS)

    polling = asyncio.create_task(poll())
    try:
        yield seen
    finally:
        await cancel([polling])
        await redis.aclose()


def _sheet(measured: dict[str, list[Result]]) -> Sheet:
    """Processor time relative to the round without a page: 1.01 is 1% more."""
    rows = []
    for name, results in measured.items():
        closed = measured[CLOSED]
        pairs = list(zip(results, closed, strict=True))
        rows.append(
            [
                name,
                str(Spread(cost(one) / cost(other) for one, other in pairs)),
                str(Spread(rate(one) / rate(other) for one, other in pairs)),
                str(Spread(map(cost, results))),
                str(Spread(map(rate, results))),
                str(Spread(each["seen"] for each in results)),
            ]
        )
    columns = [
        "live view",
        "processor time over closed",
        "rate over closed",
        "processor, us each",
        "detections/s",
        "seen",
    ]
    return Sheet("What the live view costs the trigger", columns, rows)


if __name__ == "__main__":
    main()
