"""`python -m benchmarks.interface`: reads of /v2 beside a bare route, in one run."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator

from rich.console import Console

from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.interface.load import Measured, fetch, measure, request_of
from benchmarks.interface.product import answers, process, product
from benchmarks.machine import MachineWatch
from benchmarks.recorder.postgres import database, postgres
from engine.cli.embedded.child import free_port
from engine.cli.embedded.servers import EmbeddedServers
from tests.servers.waiting import eventually

_WARM_SECONDS = 1.0
_READS = {"venue": "/v2/region/1", "profile": "/v2/profile"}


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interface", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--clients", type=int, default=32, help="connections at once")
    parser.add_argument("--database", help="postgresql:// of an administrator; default: its own")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    with postgres(arguments.database) as admin_url, database(admin_url) as url:
        found = asyncio.run(_measure(arguments, url))
    findings = Findings(
        name="interface",
        command="python -m benchmarks.interface",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(found)},
        charts=[
            Chart("Requests a second", "/s", [_rates(r).bar(name) for name, r in found.items()])
        ],
        rounds={name: [each._asdict() for each in results] for name, results in found.items()},
    )
    finish(console, findings, arguments.json)


def _sheet(found: dict[str, list[Measured]]) -> Sheet:
    rows = []
    for name, results in found.items():
        pairs = zip(results, found["bare"], strict=True)
        ratio = Spread(own.rate / bare.rate for own, bare in pairs)
        slow = Spread(each.p99 * 1000 for each in results)
        rows.append([name, str(ratio), str(_rates(results)), str(slow)])
    columns = ["route", "rate over the bare route's", "requests/s", "p99, ms"]
    return Sheet("The interface beside a bare route that returns the same bytes", columns, rows)


def _rates(results: list[Measured]) -> Spread:
    return Spread(each.rate for each in results)


async def _measure(arguments: argparse.Namespace, url: str) -> dict[str, list[Measured]]:
    rates: dict[str, list[Measured]] = {}
    async with EmbeddedServers() as servers, product(url, servers.redis_url) as (port, headers):
        body = await fetch(port, request_of(port, _READS["venue"], headers))
        with _bare(body) as bare_port:
            plain = request_of(bare_port, _READS["venue"], headers)
            await eventually(lambda: answers(bare_port, plain), what="the bare route answers")
            subjects = {"bare": (bare_port, plain)} | {
                f"GET {path}": (port, request_of(port, path, headers)) for path in _READS.values()
            }
            for _ in range(arguments.rounds):
                for name, (at, request) in subjects.items():
                    await measure(at, request, clients=arguments.clients, seconds=_WARM_SECONDS)
                    found = await measure(
                        at, request, clients=arguments.clients, seconds=arguments.seconds
                    )
                    rates.setdefault(name, []).append(found)
    return rates


@contextlib.contextmanager
def _bare(body: bytes) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.interface.bare", str(port)]
    with process(command, dict(os.environ), body):
        yield port


if __name__ == "__main__":
    main()
