"""`python -m benchmarks.faults`: every fault under load, its outcome, and a table.

Exit status 1 if anything is missing, comes twice where it must not, or does not recover.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from rich.console import Console

from benchmarks.faults.catalogue import failover, faults
from benchmarks.faults.fault import Fault, FaultOutcome, suffer
from benchmarks.faults.table import markdown, show
from benchmarks.installation.running import Installation, installation
from benchmarks.installation.servers import PostgresOnSmallDisk, RedisOnSmallDisk, SmallDisk
from benchmarks.installation.service import FlakyPartner
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.redis_kinds import SERVICE, sentinel_and_two

_SEED = 14
_ROLES = ("trigger", "recorder", "connector")
_FAILOVER = "Redis failed over"


def main() -> int:
    """Parse the arguments, run, print the table."""
    arguments = _arguments()
    console = Console(soft_wrap=True)
    outcomes = asyncio.run(_run(arguments, console))
    show(console, outcomes, arguments.rate)
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(outcomes))
    return int(any(outcome.wrong for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    names = [*(fault.name for fault in faults()), _FAILOVER]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--rate", type=float, default=150.0, help="detections a second")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace, console: Console) -> list[FaultOutcome]:
    outcomes: list[FaultOutcome] = []

    async def one(place: Installation, fault: Fault) -> None:
        console.print(f"{fault.name} ...")
        outcomes.append(await suffer(place, fault, arguments.rate))
        for wrong in outcomes[-1].wrong:
            console.print(f"  {wrong}")

    chosen = [fault for fault in faults() if fault.name in arguments.only]
    small = SmallDisk.can_be_created()
    if not small:
        console.print("full disks are left out: only root can make small ones")
    with started(KafkaServer) as kafka, ExitStack() as stack:
        redis = stack.enter_context(started(RedisOnSmallDisk if small else RedisServer))
        postgres = stack.enter_context(started(PostgresOnSmallDisk if small else PostgresServer))
        try:
            if chosen:
                async with _crewed(kafka, redis, postgres) as place:
                    for fault in chosen:
                        await one(place, fault)
        finally:
            for server in (redis, postgres):
                if isinstance(server, RedisOnSmallDisk | PostgresOnSmallDisk):
                    server.kill()
                    server.disk.remove()
    if _FAILOVER in arguments.only:
        with (
            started(KafkaServer) as kafka,
            started(PostgresServer) as postgres,
            sentinel_and_two() as (sentinel, primary, _),
        ):
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}"
            async with _crewed(kafka, primary, postgres, redis_url=url) as place:
                await one(place, failover(primary))
    return outcomes


@asynccontextmanager
async def _crewed(
    kafka: KafkaServer,
    redis: RedisServer,
    postgres: PostgresServer,
    redis_url: str | None = None,
) -> AsyncIterator[Installation]:
    """Start two processes of each role, and a stream of detections at rate 0."""
    partner = FlakyPartner(seed=_SEED)
    async with installation(
        kafka, redis, postgres, partner=partner, seed=_SEED, redis_url=redis_url
    ) as place:
        for role in _ROLES:
            for name in ("a", "b"):
                place.start(f"{role} {name}", role)
        await place.until_ready()
        with place.stream.flowing():
            yield place


if __name__ == "__main__":
    sys.exit(main())
