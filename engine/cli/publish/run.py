"""One input to the topic: source, reader and sender put together."""

from collections.abc import Iterator

from engine.cli.publish.item import Item, LineReader, PlacedError
from engine.cli.publish.sender import Sender
from engine.cli.publish.source import InputFaultError, Lines, Source, numbered_lines


class Run:
    """Publishes every line up to the end, or to the first fault; what stands before a fault is
    published. `read` counts the bytes that are done with."""

    def __init__(self, *, source: Source, reader: LineReader, sender: Sender) -> None:
        self.read = 0
        self._source = source
        self._reader = reader
        self._sender = sender

    async def publish(self) -> None:
        """Raises InputFaultError, and what `Sender.send` raises."""
        last = 0
        async for lines in numbered_lines(self._source):
            await self._sender.send(self._items(lines))
            last = lines[-1][0] if lines else last
        try:
            left = self._reader.finish()
        except PlacedError as error:
            raise self._fault(error.number, error) from None
        except ValueError as error:
            raise self._fault(last + 1, error) from None
        await self._sender.send(left)

    def _items(self, lines: Lines) -> Iterator[Item]:
        for number, line in lines:
            self.read += len(line) + 1
            try:
                item = self._reader.read(line)
            except ValueError as error:
                raise self._fault(number, error) from None
            if item is not None:
                yield item

    def _fault(self, number: int, error: ValueError) -> InputFaultError:
        return InputFaultError(f"{self._source.name}:{number}: {error}")
