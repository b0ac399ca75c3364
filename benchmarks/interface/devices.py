"""`python -m benchmarks.interface.devices`: a list of a million devices, and when it begins."""

import argparse
import asyncio
import statistics
import time
from typing import NamedTuple

import httpx
from rich.console import Console

from benchmarks.interface.product import product
from benchmarks.recorder.postgres import database, postgres
from catalog.database import open_database
from engine.cli.embedded.servers import EmbeddedServers
from tests.acceptance.api.test_big_list import fill


class Listed(NamedTuple):
    """Seconds to the first byte and to the last one, and how many bytes there were."""

    first: float
    last: float
    size: int


def main() -> None:
    """Parse the arguments, run, print lines."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interface.devices")
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up")
    parser.add_argument("--database", help="postgresql:// of an administrator; default: its own")
    arguments = parser.parse_args()
    with postgres(arguments.database) as admin_url, database(admin_url) as url:
        found = asyncio.run(_measure(arguments, url))[1:]
    console = Console()
    console.print(f"{arguments.devices:,} devices, {found[0].size / 1e6:,.0f} MB")
    for name in ("first", "last"):
        seconds = statistics.median(getattr(each, name) for each in found)
        console.print(f"{name} byte after {seconds * 1000:,.0f} ms")


async def _measure(arguments: argparse.Namespace, url: str) -> list[Listed]:
    async with EmbeddedServers() as servers, product(url, servers.redis_url) as served:
        opened = open_database(url, command_timeout=300.0)
        await fill(opened, arguments.devices)
        await opened.close()
        async with httpx.AsyncClient(headers=served.headers, timeout=300.0) as client:
            return [
                await _list(client, f"http://127.0.0.1:{served.port}/v2/crm")
                for _ in range(arguments.rounds + 1)
            ]


async def _list(client: httpx.AsyncClient, url: str) -> Listed:
    begin, first, size = time.perf_counter(), 0.0, 0
    async with client.stream("GET", url) as answer:
        async for piece in answer.aiter_raw():
            first = first or time.perf_counter() - begin
            size += len(piece)
    return Listed(first, time.perf_counter() - begin, size)


if __name__ == "__main__":
    main()
