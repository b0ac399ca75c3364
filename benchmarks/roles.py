"""`python -m benchmarks.roles`: recorder and connector as whole processes on one processor, of this
checkout and of others (`--beside`), in turn.

recorder: detections of devices that dwell, and of new devices (sweep), into PostgreSQL. connector:
calls of 16 companies to a service that answers after 50 ms.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.catalog import UUID
from benchmarks.lineup import ROOT
from benchmarks.machine import MachineWatch, on_the_last_processor
from benchmarks.report import Result, Rounds, add_json, cost, figures, finish, rate, ratios
from benchmarks.stage import stage
from benchmarks.workloads import Record, Workload
from engine.cli.local_servers import free_port
from engine.kafka.messages import format_instant

OWN = "this"
PARTS = ("recorder-dwell", "recorder-sweep", "connector")
_COMPANIES = 16
_ANSWER_SECONDS = 0.05


def main() -> None:
    """Parse the arguments, run, print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roles", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--records", type=int, default=60_000, help="detections of the recorder")
    parser.add_argument("--calls", type=int, default=6000, help="calls of the connector")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    parser.add_argument("--beside", type=Path, nargs="+", default=[], help="other checkouts")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    checkouts = {OWN: ROOT} | {each.name: each.resolve() for each in arguments.beside}
    found: dict[str, Rounds] = {}
    for part in arguments.parts:
        for number in range(arguments.rounds):
            for name, checkout in checkouts.items():
                result = asyncio.run(_run(part, checkout, arguments))
                found.setdefault(part, {}).setdefault(name, []).append(result)
                line = f"{rate(result):,.0f}/s, {cost(result):.1f} us of the processor each"
                console.print(f"{part}, round {number + 1}: {name} {line}", highlight=False)
    finish(console, arguments, watch, [ratios(OWN, found), figures(found)], found)


async def _run(part: str, checkout: Path, arguments: argparse.Namespace) -> Result:
    role, _, name = part.partition("-")
    count = arguments.calls if role == "connector" else arguments.records
    devices = count // 100 if name == "dwell" else count
    workload = Workload(name or "sweep", part, devices, 0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_the_last_processor())
        async with stage(
            arguments.broker, workload.campaigns, apart=True, checkout=checkout
        ) as where:
            topics = where.topics.names
            if role == "connector":
                url = stack.enter_context(_service())
                topic, records = topics.connector_calls, list(_calls(count, url))
            else:
                topic, records = topics.detections, list(workload.records(count))
            settings = {"CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
            with where.running(role, checkout=checkout, pinned=True, **settings) as process:
                return where.drained(process, role, topic, records)


@contextlib.contextmanager
def _service() -> Iterator[str]:
    """The customer's service in a process of its own; its address."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.service", str(port), str(_ANSWER_SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}/content"
        finally:
            process.kill()


def _calls(count: int, url: str) -> Iterator[Record]:
    """Calls of fresh detections, of companies in turn, each of another device."""
    now = format_instant(time.time())
    for number in range(count):
        company, udid = number % _COMPANIES + 1, f"phone {number}"
        call = {
            "id": f"00000000-0000-5000-8000-{number:012d}",
            "campaign": {"id": company, "name": "campaign", "hash": None},
            "company": {"id": company},
            "venue": {"id": company, "name": "venue"},
            "beacon": {"id": 1, "name": "door", "uuid": UUID, "major": 1, "minor": 2},
            "proximity": "near",
            "device": {"udid": udid, "name": "android"},
            "title": "T",
            "push": "P",
            "background": None,
            "color": None,
            "detected_at": now,
            "triggered_at": now,
            "expires_at": now,
            "delay": 3600,
            "connector": {"id": 1, "name": "c", "url": url, "method": "POST", "auth": "header"},
        }
        yield udid.encode(), json.dumps(call).encode()


if __name__ == "__main__":
    main()
