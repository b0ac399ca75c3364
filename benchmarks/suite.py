"""`python -m benchmarks.suite`: all benchmarks in turn; `make bench` and `make bench-full`.

Writes figures.json, figures.md and figures.html into --out. A benchmark that fails is named, and
the others go on.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks import figures
from benchmarks.capacity import Load, planned
from benchmarks.documents import as_markdown
from benchmarks.figures import Findings
from benchmarks.goals import compared
from benchmarks.machine import MachineWatch
from benchmarks.page import as_page
from benchmarks.store import write_all

_OUT = Path(".cache") / "bench" / "figures"
_HOURS = 6 * 3600.0  # at most, for one of them
_END_SECONDS = 30.0  # for its servers and its directories


class Part(NamedTuple):
    """One benchmark: its command behind `python -m`, with few records and with many."""

    name: str
    quick: str
    full: str


PARTS = (
    Part(
        "dwell",
        "benchmarks --broker apache --workloads dwell --records 300000 --rounds 2 --subjects all",
        "benchmarks --broker apache --workloads dwell --records 500000 --rounds 3 --subjects all",
    ),
    Part(
        "scatter",
        "benchmarks --broker apache --workloads scatter --records 100000 --rounds 2 --subjects all"
        " --warm-records 200000",
        "benchmarks --broker apache --workloads scatter sweep --records 100000 --rounds 3"
        " --subjects all",
    ),
    Part(
        "steady",
        "benchmarks --broker apache --workloads steady --records 300000 --rounds 2 --subjects all"
        " --warm-records 200000",
        "benchmarks --broker apache --workloads steady --records 300000 --rounds 3 --subjects all",
    ),
    Part(
        "latency",
        "benchmarks.scenarios.latency --seconds 10",
        "benchmarks.scenarios.latency --seconds 60",
    ),
    Part(
        "workers",
        "benchmarks.scenarios.workers --records 1000000 --rounds 2",
        "benchmarks.scenarios.workers --records 2000000 --rounds 3",
    ),
    Part(
        "growth",
        "benchmarks.scenarios.growth --records 1000000 --rounds 2 --closed 0 198",
        "benchmarks.scenarios.growth --records 1000000 --rounds 3 --beacons 1000 100000 1000000",
    ),
    Part(
        "whole",
        "benchmarks.scenarios.whole --records 300000 --rounds 2",
        "benchmarks.scenarios.whole --records 500000 --rounds 4",
    ),
    Part(
        "memory",
        "benchmarks.scenarios.memory --devices 50000 --campaigns 1 10",
        "benchmarks.scenarios.memory --devices 10000000 --campaigns 1",
    ),
    Part(
        "profile",
        "benchmarks.profile --records 300000",
        "benchmarks.profile --records 2000000",
    ),
    Part(
        "sending",
        "benchmarks.profile --workload scatter --records 60000",
        "benchmarks.profile --workload scatter --records 200000",
    ),
    Part(
        "recorder",
        "benchmarks.recorder --broker apache --records 300000 --rounds 2",
        "benchmarks.recorder --broker apache --records 500000 --rounds 4",
    ),
    Part(
        "interface",
        "benchmarks.interface --seconds 3 --rounds 3",
        "benchmarks.interface --seconds 15 --rounds 5",
    ),
    Part(
        "connector",
        "benchmarks.connector --calls 6000 --rounds 2",
        "benchmarks.connector --calls 10000 --rounds 4",
    ),
    Part(
        "crash",
        "benchmarks.crash --records 40000 --subjects trigger trigger-exactly-once confluent go"
        " streams streams-exactly-once",
        "benchmarks.crash --records 80000 --subjects all",
    ),
)


def main() -> None:
    """Parse the arguments, run, write the files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--full", action="store_true", help="at full size: about two hours")
    names = [part.name for part in PARTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--out", type=Path, default=_OUT, help=f"directory; {_OUT}")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left behind then either
    console, watch = Console(), MachineWatch()
    if watch.warning:
        console.print(watch.warning)
    arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = [part for part in PARTS if part.name in arguments.only]
    failed = _run(chosen, arguments, console)
    found = _found(arguments.out)
    if plan := planned(found, Load()):
        found["capacity"] = plan
    if goals := compared(found):
        found = {"goals": goals, **found}
    write_all(arguments.out / "figures.json", found)
    (arguments.out / "figures.md").write_text(as_markdown(found), encoding="utf-8")
    (arguments.out / "figures.html").write_text(as_page(found), encoding="utf-8")
    console.print(f"figures.json, figures.md and figures.html are in {arguments.out}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _run(parts: Sequence[Part], arguments: argparse.Namespace, console: Console) -> list[str]:
    failed = []
    for part in parts:
        command = part.full if arguments.full else part.quick
        console.rule(f"{part.name}: python -m {command}")
        file = arguments.out / f"{part.name}.json"
        file.unlink(missing_ok=True)
        begin = time.monotonic()
        status = ended([sys.executable, "-m", *command.split(), "--json", str(file)], _HOURS)
        console.print(f"{part.name} took {time.monotonic() - begin:,.0f} s")
        if status:
            failed.append(part.name)
    return failed


def ended(command: Sequence[str], seconds: float) -> int:
    """Run a command in a process group of its own, so that all of its processes end with it.
    Returns its exit status."""
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return _interrupted(process)
        except KeyboardInterrupt:
            _interrupted(process)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _interrupted(process: subprocess.Popen[bytes]) -> int:
    os.killpg(process.pid, signal.SIGINT)  # as a terminal would
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    return 1


def _found(out: Path) -> dict[str, Findings]:
    """The findings of this run, and of earlier runs in the same directory."""
    files = {part.name: out / f"{part.name}.json" for part in PARTS}
    return {name: figures.read(file) for name, file in files.items() if file.exists()}


if __name__ == "__main__":
    main()
