"""How far publishing is: a bar on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_EVERY = 5.0  # seconds between plain lines

Clock = Callable[[], float]


class PlainProgress:
    """A line every five seconds. `size` is that of the input in bytes, None if unknown."""

    def __init__(self, stream: TextIO, size: int | None, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._size = size
        self._clock = clock
        self._begin = self._told = clock()

    def update(self, sent: int, read: int) -> None:
        """`sent` detections are published of the first `read` bytes."""
        now = self._clock()
        if now - self._told < _EVERY:
            return
        self._told = now
        share = f", {read / self._size:.0%} of the file" if self._size else ""
        rate = sent / (now - self._begin)
        print(f"published {sent:,} ({rate:,.0f}/s{share})", file=self._stream, flush=True)


class BarProgress:
    """The same on a terminal."""

    def __init__(self, progress: Progress, size: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("publishing", total=size, sent="0")

    def update(self, sent: int, read: int) -> None:
        """`sent` detections are published of the first `read` bytes."""
        self._progress.update(self._task, completed=read, sent=f"{sent:,}")


@contextmanager
def shown_progress(stream: TextIO, size: int | None) -> Iterator[PlainProgress | BarProgress]:
    """The progress that suits `stream`, for as long as the context lasts."""
    console = Console(file=stream)
    if not console.is_terminal:
        yield PlainProgress(stream, size)
        return
    columns = (
        TextColumn("publishing"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[sent]} detections"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield BarProgress(progress, size)
