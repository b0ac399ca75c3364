"""A customer's service as fast as Python can be: an asyncio protocol that answers after a while.

Arguments: port, seconds until it answers.
"""

import asyncio
import sys
from typing import cast

BODY = b'{"format":"template","template":"<p>hello</p>","title":"T","push":"P"}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_LENGTH = b"content-length:"


class Service(asyncio.Protocol):
    """One connection."""

    seconds = 0.05

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self._arrived = b""

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        while self._takes_request():
            self._loop.call_later(self.seconds, self._answer)

    def _takes_request(self) -> bool:
        end = self._arrived.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = self._arrived[:end].lower()
        at = head.find(_LENGTH)
        length = 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        whole = end + 4 + length
        if len(self._arrived) < whole:
            return False
        self._arrived = self._arrived[whole:]
        return True

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(_HEAD % len(BODY) + BODY)


async def serve(port: int) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Service, "127.0.0.1", port, backlog=4096)
    print("serving", flush=True)
    await server.serve_forever()


def main() -> None:
    """Parse the arguments and serve."""
    Service.seconds = float(sys.argv[2])
    asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
