"""A process that says its figures on a line of JSON, and does not outlive who asked for them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson


class ChildFailedError(Exception):
    """It ended with an error, or not at all; the message has what it said last."""


async def figures_of(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds: float,
    directory: Path | None = None,
) -> dict[str, float]:
    """Its last line of JSON; nothing if it wrote none. Whoever is cancelled meanwhile ends it.

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
    return lines[-1] if lines else "it said nothing"
