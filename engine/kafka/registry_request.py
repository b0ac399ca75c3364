"""One bounded HTTP GET to a schema registry: a deadline, and so many bytes of an answer."""

import asyncio
import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import h11

from engine.kafka.errors import UnreadableSchemaError
from engine.process.errors import SchemaRegistryError

_ACCEPT = b"application/vnd.schemaregistry.v1+json, application/json"
_PORTS = {"http": 80, "https": 443}
_HEAD_BYTES = 64 * 1024
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
    """A complete answer."""

    status: int
    body: bytes


class RegistryAddress:
    """Where a registry is, how it knows us, and what its answers may cost. `deadline` (seconds) is
    for a whole request, `most_bytes` for the body of its answer."""

    def __init__(
        self, url: str, *, ca_file: Path | None, deadline: float, most_bytes: int = 1024 * 1024
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        self._path = parts.path.rstrip("/")
        self._deadline = deadline
        self._most_bytes = most_bytes
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._headers = [
            (b"host", parts.netloc.rpartition("@")[2].encode()),
            (b"accept", _ACCEPT),
            (b"connection", b"close"),
        ]
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers.append((b"authorization", b"Basic " + base64.b64encode(user.encode())))

    async def get(self, target: str) -> RegistryAnswer:
        """What the registry answers.

        Raises OSError, TimeoutError, SchemaRegistryError, and UnreadableSchemaError for an answer
        that is too long.
        """
        try:
            async with asyncio.timeout(self._deadline):
                return await self._exchange(target)
        except h11.ProtocolError as error:
            raise SchemaRegistryError(f"the schema registry speaks no HTTP: {error}") from error

    async def _exchange(self, target: str) -> RegistryAnswer:
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
            path = f"{self._path}{target}"
            request = h11.Request(method="GET", target=path, headers=self._headers)
            writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
            await writer.drain()
            return await self._answer(http, reader)
        finally:
            writer.transport.abort()

    async def _answer(self, http: h11.Connection, reader: asyncio.StreamReader) -> RegistryAnswer:
        status, body = 0, bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_PIECE))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._most_bytes:
                    raise UnreadableSchemaError(f"it has more than {self._most_bytes} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return RegistryAnswer(status, bytes(body))
            elif not isinstance(event, h11.InformationalResponse):
                raise SchemaRegistryError("the schema registry hung up before it answered")
