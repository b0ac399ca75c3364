"""A server that hangs: its connections stay open, new ones are taken, nothing is answered."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ServerProcess
from tests.servers.waiting import wait_until


@contextmanager
def frozen(server: ServerProcess) -> Iterator[None]:
    """Stop every process of the server with all its threads, and let them go on at the end."""
    assert server._child is not None
    stopped: list[int] = []
    try:
        for number in _family(server._child.pid):
            os.kill(number, signal.SIGSTOP)
            stopped.append(number)
        wait_until(lambda: all(map(_is_stalled, stopped)), deadline=10, what="no thread of it runs")
        yield
    finally:
        for number in stopped:
            os.kill(number, signal.SIGCONT)


def _is_stalled(pid: int) -> bool:
    """The signal is sent before the last thread on another processor has seen it."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return all(
        (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads
    )


def _family(pid: int) -> list[int]:
    """A process and all that descend from it, the parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for number in found:
        found += children.get(number, [])
    return found
