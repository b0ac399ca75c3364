"""Runs each subject in a process of its own, and keeps the servers on another processor."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import orjson


@contextlib.contextmanager
def on_the_last_processor() -> Iterator[None]:
    """Keep this process, and the servers that it starts, on the last processor.

    The subject chooses the first one, which it then has for itself.
    """
    mine = os.sched_getaffinity(0)
    if len(mine) > 1:
        os.sched_setaffinity(0, {max(mine)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def run_subject(
    module: str, *arguments: object, environment: Mapping[str, str], seconds: float
) -> dict[str, float]:
    """Run the module with the arguments, at most so many seconds. Returns its last line, JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=seconds,
        check=True,
    )
    result: dict[str, float] = orjson.loads(done.stdout.splitlines()[-1])
    return result
