"""`python -m benchmarks.interface`: reads of /v2 beside a bare route, in one run."""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.interface.load import Measured, fetch, measure, request_of
from benchmarks.interface.product import answers, process, product
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
    arguments = parser.parse_args()
    with postgres(arguments.database) as admin_url, database(admin_url) as url:
        rates = asyncio.run(_measure(arguments, url))
    table = Table("route", "requests/s", "of the bare route", "p99")
    floor = statistics.median(each.rate for each in rates["bare"])
    for name, measured in rates.items():
        rate = statistics.median(each.rate for each in measured)
        slow = statistics.median(each.p99 for each in measured)
        table.add_row(name, f"{rate:,.0f}", f"{rate / floor:.0%}", f"{slow * 1000:.1f} ms")
    Console().print(table)


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
