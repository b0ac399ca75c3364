"""Prints tables for people and lines for programs, complete at any width, without control codes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from catalog.plain_text import for_terminal

_GAP = 2


def echo_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object on a line of its own, with control characters escaped."""
    import orjson

    typer.echo(for_terminal(orjson.dumps(fields).decode()))


def print_wrapped_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, width_of_file: int
) -> None:
    """Print a table whose cells are wrapped to the width of the terminal.

    In a file or a pipe the table has `width_of_file` columns.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None)
    for row in rows:
        table.add_row(*(Text(for_terminal(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=width_of_file)
    console.print(table)


def print_rows(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    narrow: Iterable[str],
    numbers: int = 0,
) -> None:
    """Print a table with its last `numbers` columns on the right, if it fits the terminal.

    A file always gets the table. On a narrower terminal the lines of `narrow` are printed, wrapped
    with their indent. Nothing is cut off.
    """
    from rich.console import Console

    console = Console()
    rows = [[for_terminal(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    needed = sum(widths) + _GAP * (len(widths) - 1)
    if console.is_terminal and needed > console.width:
        for line in narrow:
            _print_wrapped(for_terminal(line), console.width)
        return
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if number >= len(widths) - numbers else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo((" " * _GAP).join(cells).rstrip())


def _print_wrapped(line: str, width: int) -> None:
    import textwrap

    if len(line) <= width:
        typer.echo(line)
        return
    indent = line[: len(line) - len(line.lstrip())]
    # A value without spaces that is wider than the screen is not broken, so that it can be copied.
    lines = textwrap.wrap(
        line.strip(),
        width=width,
        initial_indent=indent,
        subsequent_indent=indent or "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.echo("\n".join(lines))
