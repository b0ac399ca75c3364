"""A customer's service as fast as Python can be: an asyncio protocol that answers after a while.

Arguments: port, seconds until it answers.
"""

import asyncio
import re
import sys
from typing import cast

BODY = b'{"format":"template","template":"<p>hello</p>","title":"T","push":"P"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
_HEAD = rb".*?\r\ncontent-length: *(\d+)\r\n(?:[^\r]+\r\n)*\r\n"
_REQUEST = re.compile(_HEAD, re.DOTALL | re.IGNORECASE)


class Service(asyncio.Protocol):
    """One connection; each request has a body."""

    seconds = 0.05

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._arrived = b""

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        while head := _REQUEST.match(self._arrived):
            end = head.end() + int(head[1])
            if len(self._arrived) < end:
                return
            self._arrived = self._arrived[end:]
            asyncio.get_running_loop().call_later(self.seconds, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(ANSWER)


async def serve(port: int) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Service, "127.0.0.1", port, backlog=4096)
    print("serving", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    Service.seconds = float(sys.argv[2])
    asyncio.run(serve(int(sys.argv[1])))
