"""Converts between a PostgreSQL database and SQL statements."""

import subprocess
from pathlib import Path

from tests.servers.process import find_program

_DEADLINE = 60


def dump(url: str) -> str:
    """Schema and rows, a statement a row."""
    options = ["--inserts", "--no-owner", "--no-privileges", "--dbname", url]
    text = _run(_program("pg_dump"), *options)
    # Lines that only psql of this very version takes, and a version in a comment.
    kept = [line for line in text.splitlines() if line and not line.startswith(("\\", "--"))]
    return "\n".join(kept) + "\n"


def load(text: str, url: str) -> None:
    """Run the statements in an empty database."""
    options = ["--quiet", "--set=ON_ERROR_STOP=1", "--no-psqlrc", "--dbname", url]
    _run(_program("psql"), *options, given=text)


def _program(name: str) -> Path:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return find_program(name, beside=installed, package="postgresql")


def _run(*command: str | Path, given: str | None = None) -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=_DEADLINE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
