"""The demo's display: a live table on a terminal, a line every few seconds elsewhere."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from engine.cli.demo.figures import EngineFigures

_EVERY = 5.0  # seconds between plain lines
_BAR = 28


class DemoProgress(NamedTuple):
    """The demo's progress, `seconds` after the first detection; `sends` by campaign name."""

    seconds: float
    published: int
    total: int
    figures: EngineFigures
    sends: Mapping[str, int]


class DemoScreen(Protocol):
    """Shows the progress repeatedly."""

    def show(self, progress: DemoProgress) -> None: ...


class PlainScreen:
    """A line every five seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = _EVERY

    def show(self, progress: DemoProgress) -> None:
        """Print a line if it is time."""
        if progress.seconds < self._next:
            return
        self._next = progress.seconds + _EVERY
        figures = progress.figures
        self._console.print(
            f"{progress.seconds:3.0f} s: {figures.decided:,} of {progress.total:,} detections, "
            f"{sum(progress.sends.values()):,} notifications, {latency_words(figures)}",
            highlight=False,
            soft_wrap=True,
        )


class LiveScreen:
    """Tables that are updated in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, progress: DemoProgress) -> None:
        """Draw the progress."""
        self._live.update(drawn(progress), refresh=True)


def drawn(progress: DemoProgress) -> Group:
    """The progress as an object that rich can draw."""
    share = Text(
        f" {progress.published:,} of {progress.total:,} detections, {progress.seconds:.0f} s"
    )
    bar = ProgressBar(total=progress.total, completed=progress.published, width=_BAR)
    head = Table.grid()
    head.add_row(bar, share)
    detections = _count_table("detections decided", progress.figures.detections)
    campaigns = _count_table("sent, by campaign", progress.sends)
    latency = Text(f"detection to notification: {latency_words(progress.figures)}")
    return Group(head, Text(), Columns([detections, campaigns], padding=(0, 3)), Text(), latency)


def _count_table(title: str, counts: Mapping[str, int]) -> Table:
    """A table of names and numbers, in their order."""
    table = Table(title, "", box=None, pad_edge=False, min_width=30)
    table.columns[1].justify = "right"
    for name, count in counts.items():
        table.add_row(Text(name), f"{count:,}")
    return table


def latency_words(figures: EngineFigures) -> str:
    """The latency in words."""
    middle, worst = (figures.latency_quantile(q) for q in (0.5, 0.99))
    if middle is None or worst is None:
        return "no notification yet"
    return f"p50 {middle * 1000:.0f} ms, p99 {worst * 1000:.0f} ms"


@contextmanager
def open_screen(console: Console) -> Iterator[DemoScreen]:
    """The screen that suits the console; the engine's warnings appear above a live one."""
    if not console.is_terminal:
        yield PlainScreen(console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live, _logs_above():
        yield LiveScreen(live)


@contextmanager
def _logs_above() -> Iterator[None]:
    """Make the log handlers write above the live tables.

    Live redirects sys.stderr, but the log handlers hold the stream from before.
    """
    handlers = [h for h in logging.getLogger().handlers if type(h) is logging.StreamHandler]
    before = [handler.setStream(sys.stderr) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)
