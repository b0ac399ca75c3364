"""A child process that prints its figures as a line of JSON, and ends with its parent."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson


class ChildFailedError(Exception):
    """The process ended with an error, or not at all; the message has its last output."""


async def figures_of(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds: float,
    directory: Path | None = None,
) -> dict[str, float]:
    """The last line of JSON of a command; empty without one. A cancellation ends the process.

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
