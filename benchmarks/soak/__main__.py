"""`python -m benchmarks.soak`: ten minutes, or hours, of everything at half of what it can do.

Exit status 1, with the reasons, if memory or lag grows, a message is missing, or `proximity verify`
finds a difference.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from rich.console import Console

from benchmarks.soak.disturbances import ROLES
from benchmarks.soak.page import write_soak_page
from benchmarks.soak.run import Soak, SoakResult
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import started
from tests.servers.redis import RedisServer


def main() -> int:
    """Parse the arguments, run, write the page, print what was found."""
    arguments = _arguments()
    console = Console(soft_wrap=True, highlight=False)
    with (
        started(KafkaServer) as kafka,
        started(RedisServer) as redis,
        started(PostgresServer) as postgres,
    ):
        soak = Soak(
            seconds=arguments.minutes * 60,
            share=arguments.share,
            rate=arguments.rate,
            restart_seconds=arguments.restart_seconds,
            restarted=arguments.restart,
            report=console.print,
        )
        result = asyncio.run(soak.run(kafka, redis, postgres))
    _write(arguments.page, arguments.minutes, result)
    for check in result.checks:
        console.print(f"{'ok ' if check.is_well else 'BAD'}  {check.name}: {check.found}")
    console.print(f"plots: {arguments.page}")
    return int(not all(check.is_well for check in result.checks))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 240: four hours")
    parser.add_argument(
        "--share", type=float, default=0.5, help="of what a burst shows that it can do"
    )
    parser.add_argument("--rate", type=float, help="detections a second, instead of a share")
    parser.add_argument("--restart-seconds", type=float, default=20.0, help="between two restarts")
    parser.add_argument(
        "--restart", nargs="+", choices=ROLES, default=ROLES, help="what is restarted in turn"
    )
    parser.add_argument("--page", type=Path, default=Path("soak.html"), help="where the plots go")
    return parser.parse_args()


def _write(page: Path, minutes: float, result: SoakResult) -> None:
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    title = f"{minutes:g} minutes at {result.rate:,.0f} detections a second, {when}"
    page.write_text(
        write_soak_page(title, result.figures, result.checks, result.samples, result.marks)
    )


if __name__ == "__main__":
    sys.exit(main())
