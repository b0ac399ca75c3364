"""`proximity demo` as a process, as a first-time user without a terminal runs it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> "subprocess.Popen[str]":
    # What is set for the user's own engine must not reach the demo.
    env = os.environ | {"PROXIMITY_DATABASE_URL": "sqlite:////nowhere/x", "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-m", "engine.cli", "demo", *arguments],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving() -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A demo that keeps running, and its output up to the line before the notifications."""
    process = start("--serve", "--seconds", "4")
    try:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if line.startswith("Notifications as they come:"):
                break
        yield process, printed
    finally:
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
    assert output.endswith("stopped\n")


def paste(commands: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", "-c", commands],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
