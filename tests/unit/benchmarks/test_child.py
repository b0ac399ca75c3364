"""Processes of a benchmark say their figures, say why they have none, and do not outlive it."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from benchmarks.child import ChildFailedError, figures_of
from benchmarks.suite import ended
from tests.servers.waiting import eventually, wait_until

HANGS = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid()));"
HANGS += "time.sleep(600)"
LEAVES = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]])"


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def run_child(command: list[str], seconds: float = 60.0) -> dict[str, float]:
    return asyncio.run(figures_of(command, environment=os.environ, seconds=seconds))


def is_running(file: Path) -> bool:
    """Whether the process of the file lives; one that nobody has waited for does not."""
    try:
        stat = (Path("/proc") / file.read_text() / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_the_last_line_of_json_counts():
    script = python('print("{\\"rows\\": 1}"); print("{\\"rows\\": 2}"); print("done")')
    assert run_child(script) == {"rows": 2}
    assert run_child(python("print('nothing')")) == {}


def test_a_process_that_fails_says_its_last_line():
    with pytest.raises(ChildFailedError, match="status 1: ValueError: no broker"):
        run_child(python("raise ValueError('no broker')"))


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path):
    with pytest.raises(ChildFailedError, match="not done after 2 s"):
        run_child(python(HANGS, str(tmp_path / "pid")), seconds=2.0)
    if (tmp_path / "pid").exists():  # on a slow machine it had not started
        assert not is_running(tmp_path / "pid")


def test_a_cancelled_caller_ends_the_child(tmp_path: Path):
    file = tmp_path / "pid"

    async def cancelled() -> None:
        waiting = asyncio.create_task(
            figures_of(python(HANGS, str(file)), environment=os.environ, seconds=600.0)
        )
        await eventually(lambda: file.exists() and bool(file.read_text()), deadline=30.0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    assert not is_running(file)


def test_processes_that_a_part_started_end_with_it(tmp_path: Path):
    file = tmp_path / "pid"
    wait = "import pathlib, sys, time\nfile = pathlib.Path(sys.argv[2])\n"
    wait += "while not (file.exists() and file.read_text()): time.sleep(0.01)"
    assert ended(python(f"{LEAVES}\n{wait}", HANGS, str(file)), 60.0) == 0
    wait_until(lambda: not is_running(file), deadline=30.0, what="it has ended")


def test_a_part_that_takes_too_long_is_a_failure(tmp_path: Path):
    assert ended(python(HANGS, str(tmp_path / "pid")), 1.0) == 1
