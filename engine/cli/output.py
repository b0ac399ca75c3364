"""Prints tables for people and JSON lines for programs, and shows progress."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from catalog.plain_text import for_terminal
from engine.cli.command import CommandError
from rules.visits import LENGTHS

_WIDTH_OF_A_FILE = 10_000
_MOST_FAULTS = 20  # that are printed of a file
# The classes of the lengths of visits.
LENGTH_NAMES = [f"{each}-{above} min" for each, above in pairwise(LENGTHS)]
LENGTH_NAMES.append(f"{LENGTHS[-1]}+ min")


def say(line: str, *, err: bool = False) -> None:
    """Print a line that has text from outside, with control characters escaped."""
    typer.echo(for_terminal(line).rstrip(), err=err)


def echo_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object on a line of its own."""
    say(msgspec.json.encode(fields).decode())


def count_of(number: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def refused_file(name: str, faults: Sequence[str], done: str) -> CommandError:
    """Print the first faults of a file. Returns the command's error, which ends with what was
    `done`."""
    for fault in faults[:_MOST_FAULTS]:
        say(fault, err=True)
    return CommandError(f"{name} has {count_of(len(faults), 'fault')}; {done}")


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table. Columns of numbers are on the right; an id is a name, and None is `-`. A
    column without any value is left out.

    A file gets one line for each row; on a terminal cells are wrapped to its width.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    columns = []
    for name, *cells in zip(header, *rows, strict=True):
        if set(cells) == {None}:
            continue
        is_number = not name.endswith("id") and bool({int, float} & set(map(type, cells)))
        table.add_column(Text(name), justify="right" if is_number else "left", no_wrap=is_number)
        shown = ("-" if each is None else f"{each:,}" if is_number else str(each) for each in cells)
        columns.append([Text(for_terminal(each), overflow="fold") for each in shown])
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    with console.capture() as captured:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextmanager
def shown_progress(verb: str, noun: str) -> Iterator[Callable[..., None]]:
    """Show progress on standard error, if that is a terminal. `verb` and `noun` name the work.

    What it gives takes, by keyword, the `count` of the records that are done, and in any unit how
    much of the `total` is `completed`.
    """
    console = Console(stderr=True)
    done = TextColumn(f"{verb} {{task.fields[count]:,}} {noun}")
    columns = (done, *Progress.get_default_columns()[1:])
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield partial(progress.update, progress.add_task(verb, total=None, count=0))
