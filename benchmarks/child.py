"""Runs a command as a child process, and reads the figures that the command prints as JSON."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson


class ChildFailedError(Exception):
    """The child process failed or exceeded its time. After a failure the message has the last line
    of its standard error."""


async def figures_of(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds: float,
    directory: Path | None = None,
) -> dict[str, float]:
    """Run a command in `directory` and return its figures.

    The figures are the last line of its output that is a JSON object; without such a line the
    result is empty. The process is killed after `seconds`, and when the caller is cancelled.
    Raises ChildFailedError.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            written, errors = await process.communicate()
    except TimeoutError:
        raise ChildFailedError(f"not done after {seconds:,.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ChildFailedError(f"it ended with status {process.returncode}: {_last(errors)}")
    lines = [line for line in written.splitlines() if line.startswith(b"{")]
    found: dict[str, float] = orjson.loads(lines[-1]) if lines else {}
    return found


def _last(message: bytes) -> str:
    lines = message.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
