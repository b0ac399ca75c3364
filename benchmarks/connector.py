"""`python -m benchmarks.connector`: HTTP clients and the role connector, 512 calls in flight,
against a service that answers in 50 ms."""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.child import figures_of
from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.machine import MachineWatch, first_processor, on_the_last_processor
from engine.cli.embedded.child import free_port
from engine.cli.embedded.servers import EmbeddedServers

SUBJECTS = ("httpx", "httpx-a-company", "h11", "caller", "aiohttp", "role")
_BARE = "h11"
_SECONDS = 300.0

Result = dict[str, float]


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connector", description=__doc__)
    parser.add_argument("--calls", type=int, default=6000, help="calls a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--answer", type=float, default=0.05, help="seconds the service takes")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    with on_the_last_processor(), service(arguments.answer) as url:
        found = asyncio.run(_measure(arguments, url, console))
    findings = Findings(
        name="connector",
        command="python -m benchmarks.connector",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(found)},
        charts=[
            Chart("Calls a second", "/s", [Spread(map(_rate, r)).bar(n) for n, r in found.items()])
        ],
        rounds=found,
    )
    finish(console, findings, arguments.json)


def _sheet(found: dict[str, list[Result]]) -> Sheet:
    """Ratios over the bare loop of the library that the product's caller is built on."""
    rows = []
    for name, results in found.items():
        pairs = zip(results, found[_BARE], strict=True)
        ratio = Spread(_rate(own) / _rate(bare) for own, bare in pairs)
        cost = Spread(1e6 * each["seconds_processor"] / each["calls"] for each in results)
        rows.append([name, str(ratio), str(Spread(map(_rate, results))), str(cost)])
    columns = ["subject", f"rate over {_BARE}", "calls/s", "processor, us a call"]
    return Sheet("Connector calls, 512 in flight, one processor", columns, rows)


def _rate(result: Result) -> float:
    return result["calls"] / result["seconds"]


@contextlib.contextmanager
def service(seconds: float) -> Iterator[str]:
    """The customer's service, in a process of its own; its address."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.connector_service", str(port), str(seconds), "-1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}/content"
        finally:
            process.kill()


async def _measure(
    arguments: argparse.Namespace, url: str, console: Console
) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {name: [] for name in SUBJECTS}
    for number in range(arguments.rounds):
        for name in SUBJECTS:
            found[name].append(await _round(name, arguments.calls, url))
            console.print(f"round {number + 1}: {name} {_rate(found[name][-1]):,.0f}/s")
    return found


async def _round(name: str, calls: int, url: str) -> Result:
    if name == "httpx":
        calls = min(calls, 1000)  # it takes its time
    if name != "role":
        return await _run(name, calls, url, {})
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedServers() as servers:
            return await _run(
                name,
                calls,
                url,
                {
                    "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": servers.kafka_bootstrap,
                    "PROXIMITY_REDIS_URL": servers.redis_url,
                    "PROXIMITY_DATABASE_URL": await _empty_catalog(Path(directory)),
                    "PROXIMITY_CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
                },
            )


async def _empty_catalog(directory: Path) -> str:
    from catalog.migrate import migrate

    url = f"sqlite:///{directory / 'catalog.sqlite3'}"
    await migrate(url)
    return url


async def _run(name: str, calls: int, url: str, environment: dict[str, str]) -> Result:
    module = [sys.executable, "-m", "benchmarks.connector_subjects", name]
    command = [*module, str(calls), url, str(first_processor())]
    return await figures_of(command, environment=os.environ | environment, seconds=_SECONDS)


if __name__ == "__main__":
    main()
