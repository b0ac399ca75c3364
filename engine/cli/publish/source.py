"""Reads lines of a file, a pipe or standard input into items, a block at a time."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Self

from engine.cli.publish.item import Item, LineReader, PlacedError

BLOCK = 256 * 1024
LONGEST_LINE = 16 * 1024 * 1024

Lines = list[tuple[int, bytes]]


class InputFaultError(ValueError):
    """The input cannot be published; the message begins with the place, `file:line`."""


class Source:
    """Bytes to read. `name` is for messages; `size` is None if it is unknown."""

    def __init__(self, stream: FileIO, name: str) -> None:
        status = os.fstat(stream.fileno())
        self.name = name
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        self._stream = stream
        self._waits = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
        self._waits = self._waits or stream.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    async def blocks(self) -> AsyncIterator[bytes]:
        """The bytes as they arrive. There is no deadline, because a pipe's writer may be slow."""
        if not self._waits:
            while block := self._stream.read(BLOCK):
                yield block
                await asyncio.sleep(0)
            return
        reader = asyncio.StreamReader(limit=BLOCK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._stream
        )
        try:
            while block := await reader.read(BLOCK):
                yield block
        finally:
            transport.close()


class Input:
    """A source, read with `reader`. `read_bytes` counts the bytes that are read into items."""

    def __init__(self, source: Source, reader: LineReader) -> None:
        self.read_bytes = 0
        self._source = source
        self._reader = reader

    async def blocks(self) -> AsyncIterator[Iterable[Item]]:
        """The items of one block of lines after the other, read lazily.

        A fault raises InputFaultError after the items before it.
        """
        last = 0
        async for lines in numbered_lines(self._source):
            yield self._items(lines)
            last = lines[-1][0] if lines else last
        try:
            left = self._reader.finish()
        except PlacedError as error:
            raise self._fault(error.number, error) from None
        except ValueError as error:
            raise self._fault(last + 1, error) from None
        yield left

    def _items(self, lines: Lines) -> Iterator[Item]:
        for number, line in lines:
            self.read_bytes += len(line) + 1
            try:
                item = self._reader.read(line)
            except ValueError as error:
                raise self._fault(number, error) from None
            if item is not None:
                yield item

    def _fault(self, number: int, error: ValueError) -> InputFaultError:
        return InputFaultError(f"{self._source.name}:{number}: {error}")


def opened(path: Path) -> Source:
    """The file at `path`, or standard input for `-`. Raises OSError."""
    if str(path) == "-":
        return Source(open(sys.stdin.fileno(), "rb", buffering=0, closefd=False), "standard input")
    return Source(path.open("rb", buffering=0), str(path))


async def numbered_lines(source: Source) -> AsyncIterator[Lines]:
    """Lists of (line number, line without its end), one list per block.

    Raises InputFaultError for a line of more than LONGEST_LINE bytes.
    """
    async for number, lines in line_blocks(source):
        yield [(number + i, line.removesuffix(b"\r")) for i, line in enumerate(lines)]


async def line_blocks(source: Source) -> AsyncIterator[tuple[int, list[bytes]]]:
    """The number of the first line and the lines, per block. A carriage return is kept.

    Raises InputFaultError for a line of more than LONGEST_LINE bytes.
    """
    number, rest = 1, b""
    async for block in source.blocks():
        *ended, rest = (rest + block).split(b"\n")
        if len(rest) > LONGEST_LINE:
            place = f"{source.name}:{number + len(ended)}"
            raise InputFaultError(f"{place}: longer than {LONGEST_LINE} bytes")
        yield number, ended
        number += len(ended)
    if rest:
        yield number, [rest]
