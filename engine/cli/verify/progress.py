"""How far reading is: a bar on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_EVERY = 5.0  # seconds between plain lines


class Shown(Protocol):
    """Where progress goes: `begin` with the records to read, then `read` more of them."""

    def begin(self, records: int) -> None: ...
    def read(self, records: int) -> None: ...


class PlainProgress:
    """A line every five seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._began = self._told = clock()
        self._all = self._done = 0

    def begin(self, records: int) -> None:
        """So many records are to be read."""
        self._all = records

    def read(self, records: int) -> None:
        """So many more are read."""
        self._done += records
        now = self._clock()
        if now - self._told < _EVERY:
            return
        self._told = now
        rate = self._done / (now - self._began)
        print(
            f"read {self._done:,} of {self._all:,} records ({rate:,.0f}/s)",
            file=self._stream,
            flush=True,
        )


class BarProgress:
    """The same on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("reading", total=None)

    def begin(self, records: int) -> None:
        """So many records are to be read."""
        self._progress.update(self._task, total=records)

    def read(self, records: int) -> None:
        """So many more are read."""
        self._progress.advance(self._task, records)


@contextmanager
def shown_progress(stream: TextIO) -> Iterator[Shown]:
    """The progress that suits `stream`, for as long as the context lasts."""
    console = Console(file=stream)
    if not console.is_terminal:
        yield PlainProgress(stream)
        return
    columns = (
        TextColumn("reading"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield BarProgress(progress)
