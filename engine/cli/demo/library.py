"""A small customer's service: the library's computer, which knows what each reader has on loan.

The connector role calls it as it would call any company's service: over HTTP, with the parameters
of the catalog, an idempotency-key and a deadline.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from engine.process.http_limits import HttpLimits
from engine.process.http_server import BoundedServer, listen

KEY = "demo"
PATH = "/loans"
_LARGEST = 64 * 1024
_STOP_SECONDS = 30.0
_BOOKS = (
    "Don Quijote",
    "The Name of the Rose",
    "La Regenta",
    "Tirant lo Blanc",
    "Middlemarch",
    "Hopscotch",
)


@asynccontextmanager
async def library_service() -> AsyncIterator[str]:
    """Serve on a free port of loopback; gives the url for the connector. Raises PortInUseError."""
    name = "the library's service"
    listener = listen("127.0.0.1", 0, setting=name)
    server = BoundedServer(_answer, HttpLimits(), interface="asgi3", timeout_graceful_shutdown=1)
    task = asyncio.create_task(server.serve(sockets=[listener]), name=name)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}"
    finally:
        server.should_exit = True
        await asyncio.wait([task], timeout=_STOP_SECONDS)
        task.cancel()
        listener.close()


async def _answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
    if scope["path"] != PATH or headers.get("x-library-key") != KEY.encode():
        await _reply(send, 403, {"message": "the header x-library-key is missing or wrong"})
        return
    call = msgspec.json.decode(await _body(receive))
    await _reply(send, 200, loans(call["device"]["udid"]))


def loans(udid: str) -> dict[str, Any]:
    """The books that the reader with the device has on loan; the same for the same device."""
    number = zlib.crc32(udid.encode())
    first, second = _BOOKS[number % 6], _BOOKS[(number % 6 + 1 + number // 6 % 5) % 6]
    return {
        "title": "Your loans",
        "push": f"{first} is due tomorrow.",
        "format": "html",
        "html": f"<ul><li>{first}: due tomorrow</li><li>{second}: due in 9 days</li></ul>",
    }


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more and len(body) <= _LARGEST:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def _reply(send: Any, status: int, content: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(content)})
