"""A command on a terminal of a given width, as a person sees it."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def on_a_terminal(*arguments: str, columns: int, env: Mapping[str, str] | None = None) -> list[str]:
    """The lines that are printed."""
    ours, theirs = pty.openpty()
    more = {"COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.cli", *arguments],
        cwd=ROOT,
        env={**(os.environ if env is None else env), **more},
        stdout=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 65536):
            seen += block
    except OSError:  # Linux's way to say that the other side has closed
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0
    return seen.decode().splitlines()
