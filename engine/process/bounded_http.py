"""One HTTP request with a deadline and a limit on the answer, to a server of the installation.

(Calls to customers' services pass the egress guard in `connectors/`.)
"""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import h11

from engine.process.errors import AnswerTooLongError, NoHttpError

_PORTS = {"http": 80, "https": 443}
_HEAD_BYTES = 64 * 1024
_PIECE = 64 * 1024
_OK = 200

HttpHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """A complete answer."""

    status: int
    content_type: str
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the status is 200."""
        return self.status == _OK


class BoundedAddress:
    """The address of a server, and the limits of a request to it.

    `deadline` (seconds) is for a whole request, `most_bytes` for the body of its answer. Raises
    OSError for a `ca_file` that is not PEM.
    """

    def __init__(self, url: str, *, ca_file: Path | None, deadline: float, most_bytes: int) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        self._deadline = deadline
        self._most_bytes = most_bytes
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._headers = [
            (b"host", parts.netloc.rpartition("@")[2].encode()),
            (b"connection", b"close"),
        ]

    async def fetch(
        self, target: str, headers: HttpHeaders, *, method: str = "GET", body: bytes = b""
    ) -> BoundedAnswer:
        """Send a request. Returns the answer.

        Raises OSError, TimeoutError, NoHttpError, AnswerTooLongError.
        """
        headers = [*self._headers, *headers]
        if body:
            headers.append((b"content-length", str(len(body)).encode()))
        request = h11.Request(method=method, target=target, headers=headers)
        try:
            async with asyncio.timeout(self._deadline):
                return await self._exchange(request, body)
        except h11.ProtocolError as error:
            raise NoHttpError(f"speaks no HTTP: {error}") from error

    async def _exchange(self, request: h11.Request, body: bytes) -> BoundedAnswer:
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
            events = [request, *([h11.Data(body)] if body else []), h11.EndOfMessage()]
            writer.write(b"".join(http.send(event) or b"" for event in events))
            await writer.drain()
            return await self._answer(http, reader)
        finally:
            writer.transport.abort()

    async def _answer(self, http: h11.Connection, reader: asyncio.StreamReader) -> BoundedAnswer:
        status, content_type, body = 0, "", bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_PIECE))
            elif isinstance(event, h11.Response):
                status = event.status_code
                content_type = dict(event.headers).get(b"content-type", b"").decode("latin-1")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._most_bytes:
                    raise AnswerTooLongError(f"it has more than {self._most_bytes} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return BoundedAnswer(status, content_type, bytes(body))
            elif not isinstance(event, h11.InformationalResponse):
                raise NoHttpError("hung up before it answered")
