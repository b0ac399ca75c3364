"""Sends the head of an answer and its body together: in one system call, as one packet."""

import asyncio
from collections.abc import Iterable
from typing import Any

_LONGEST = 8192


class JoinedWrites(asyncio.Transport):
    """A transport that sends two pieces at once if they are written one directly after the other.

    uvicorn writes the head of an answer, and then its body. A short piece waits for the next one,
    but not longer than until the event loop goes on; nothing else of the transport changes.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._waiting: bytes | bytearray | memoryview = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the data, or let it wait for the next piece."""
        if self._waiting:
            first, self._waiting = self._waiting, b""
            self._transport.writelines((first, data))
        elif len(data) > _LONGEST:
            self._transport.write(data)  # no more than a head is kept from the transport's limits
        elif data:
            self._waiting = data
            self._loop.call_soon(self._send_waiting)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send the pieces."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what waits, and close."""
        self._send_waiting()
        self._transport.close()

    def abort(self) -> None:
        """Close at once. What waits is lost, as is what the transport has not sent yet."""
        self._waiting = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the transport is closing or closed."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the transport knows by this name."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Receive nothing until reading is resumed."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._transport.resume_reading()

    def _send_waiting(self) -> None:
        if self._waiting:
            data, self._waiting = self._waiting, b""
            self._transport.write(data)
