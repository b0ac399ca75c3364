"""`python -m benchmarks.interface`: reads of /v2 compared with a bare route."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator

from rich.console import Console

from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.interface.load import Measured, fetch, measure, request_of
from benchmarks.interface.product import Served, answers, process, product
from benchmarks.machine import MachineWatch, on_the_last_processor
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
    with (
        on_the_last_processor(),
        postgres(arguments.database) as admin_url,
        database(admin_url) as url,
    ):
        found = asyncio.run(_measure(arguments, url, console))
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
        pairs = list(zip(results, found["bare"], strict=True))
        ratio = Spread(own.rate / bare.rate for own, bare in pairs)
        work = Spread(bare.cost / own.cost for own, bare in pairs)
        cost = Spread(1e6 * each.cost for each in results)
        slow = Spread(1000 * each.p99 for each in results)
        rows.append([name, *map(str, (ratio, work, _rates(results), cost, slow))])
    columns = ["route", "rate over bare", "bare's us over its", "requests/s"]
    columns += ["processor, us each", "p99, ms"]
    return Sheet("The interface beside a bare route that returns the same bytes", columns, rows)


def _rates(results: list[Measured]) -> Spread:
    return Spread(each.rate for each in results)


async def _measure(
    arguments: argparse.Namespace, url: str, console: Console
) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    async with EmbeddedServers() as servers, product(url, servers.redis_url) as served:
        body = await fetch(served.port, request_of(served.port, _READS["venue"], served.headers))
        with _bare(body, served.headers) as bare:
            plain = request_of(bare.port, _READS["venue"], bare.headers)
            await eventually(lambda: answers(bare.port, plain), what="the bare route answers")
            subjects = {"bare": (bare, _READS["venue"])}
            subjects |= {f"GET {path}": (served, path) for path in _READS.values()}
            for number in range(arguments.rounds):
                for name, (requested, path) in subjects.items():
                    result = await _measured(requested, path, arguments)
                    found.setdefault(name, []).append(result)
                    console.print(
                        f"  round {number + 1}: {name} {result.rate:,.0f}/s, "
                        f"{1e6 * result.cost:,.0f} us of the processor each",
                        highlight=False,
                    )
    return found


async def _measured(served: Served, path: str, arguments: argparse.Namespace) -> Measured:
    request, clients = request_of(served.port, path, served.headers), arguments.clients
    await measure(served.port, request, pid=served.pid, clients=clients, seconds=_WARM_SECONDS)
    return await measure(
        served.port, request, pid=served.pid, clients=clients, seconds=arguments.seconds
    )


@contextlib.contextmanager
def _bare(body: bytes, headers: dict[str, str]) -> Iterator[Served]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.interface.bare", str(port)]
    with process(command, dict(os.environ), body) as pid:
        yield Served(pid, port, headers)


if __name__ == "__main__":
    main()
