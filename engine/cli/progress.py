"""Shows the progress of a command: a bar on a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_EVERY = 5.0  # seconds between plain lines


class PlainProgress:
    """A line every five seconds. `verb` and `noun` name the work: "read", "records"."""

    def __init__(
        self, stream: TextIO, verb: str, noun: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._verb = verb
        self._noun = noun
        self._clock = clock
        self._began = self._printed = clock()
        self._total: int | None = None

    def expect(self, total: int | None) -> None:
        """Set the total that `done` counts towards; None while it is unknown."""
        self._total = total

    def update(self, count: int, done: int | None = None) -> None:
        """`count` records are done. `done` is the progress towards the total, if it differs."""
        now = self._clock()
        if now - self._printed < _EVERY:
            return
        self._printed = now
        part = count if done is None else done
        share = f", {part / self._total:.0%}" if self._total else ""
        rate = count / (now - self._began)
        print(
            f"{self._verb} {count:,} {self._noun} ({rate:,.0f}/s{share})",
            file=self._stream,
            flush=True,
        )


class BarProgress(PlainProgress):
    """A bar on a terminal."""

    def __init__(self, stream: TextIO, verb: str, noun: str, progress: Progress) -> None:
        super().__init__(stream, verb, noun)
        self._progress = progress
        self._task = progress.add_task(verb, total=None, count="0")

    def expect(self, total: int | None) -> None:
        """As PlainProgress."""
        self._progress.update(self._task, total=total)

    def update(self, count: int, done: int | None = None) -> None:
        """As PlainProgress."""
        completed = count if done is None else done
        self._progress.update(self._task, completed=completed, count=f"{count:,}")


@contextmanager
def shown_progress(stream: TextIO, verb: str, noun: str) -> Iterator[PlainProgress]:
    """The kind of progress that suits `stream`, while the context lasts."""
    console = Console(file=stream)
    if not console.is_terminal:
        yield PlainProgress(stream, verb, noun)
        return
    columns = (
        TextColumn(verb),
        TextColumn("{task.fields[count]} " + noun),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield BarProgress(stream, verb, noun, progress)
