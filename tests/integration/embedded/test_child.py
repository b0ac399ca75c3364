"""A server process ends with the process that started it, in order or not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.embedded.child import ChildProcess, ServerStartError
from tests.servers.waiting import wait_until

_PARENT = """
import sys
from pathlib import Path
from engine.cli.embedded.child import ChildProcess
print(ChildProcess(["sleep", "600"], log=Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A process that has ended stays visible until its new parent looks.
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, tmp_path / "log"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not _has_ended(pid)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: _has_ended(pid), deadline=10, what="the server is gone")


def test_a_server_that_does_not_heed_its_signal_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; echo deaf; exec sleep 600"
    child = ChildProcess(["sh", "-c", script], log=tmp_path / "log")
    wait_until(lambda: child.log_tail() == "deaf", deadline=10, what="the signal is ignored")
    child.stop(deadline=0.05)
    child.stop()
    child.kill()
    assert not child.running


def test_the_end_of_a_servers_log_can_be_reported(tmp_path: Path) -> None:
    child = ChildProcess(["sh", "-c", "echo one; echo two >&2"], log=tmp_path / "log")
    wait_until(lambda: not child.running, deadline=10, what="it has ended")
    child.stop()
    assert child.log_tail(lines=1) == "two"


def test_a_user_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises((ServerStartError, KeyError), match="nobody-of-that-name"):
        ChildProcess(["true"], log=tmp_path / "log", user="nobody-of-that-name")
