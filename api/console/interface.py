"""Calls the /v2 operations from inside the process, with the session of the visitor.

The calls take the whole way of a request: permissions, limits, audit, log and metrics are those of
any other client.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from api.console.errors import OversizedAnswerError, RefusedError
from api.permissions import KEY_HEADER, TOKEN_HEADER
from api.routes.parameters import PREFIX

_LONGEST = 16 * 1024 * 1024  # bytes of an answer; pages ask for few records
Query = Mapping[str, object]


class InterfaceReply(NamedTuple):
    """What an operation answered."""

    status: int
    body: Any

    @property
    def fields(self) -> dict[str, str]:
        """What is wrong, by the place of the field."""
        return dict(self.body.get("fields", {})) if isinstance(self.body, dict) else {}

    @property
    def message(self) -> str:
        """What went wrong, in the interface's words."""
        if not isinstance(self.body, dict):
            return ""
        return str(self.body.get("message") or self.body.get("error_message") or "")

    @property
    def is_good(self) -> bool:
        """Whether the operation did what it was asked."""
        return self.status < 400


class InterfaceClient:
    """The operations, for one request of a browser; `email` and `token` are its session's."""

    def __init__(self, request: Request, *, email: str = "", token: str = "") -> None:
        self._request = request
        self._session = [(KEY_HEADER, email), (TOKEN_HEADER, token)] if token else []

    async def read(self, path: str, **query: object) -> Any:
        """What GET answers. Raises RefusedError for anything but success."""
        return self._good(await self.call("GET", path, query=query))

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """What POST answers. Raises RefusedError for anything but success."""
        return self._good(await self.call("POST", path, body))

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Query | None = None,
    ) -> InterfaceReply:
        """Call an operation, whatever it answers."""
        gathered = _Gathered()
        scope, content = self._scope(method, path, query or {}, "application/json", body)
        await self._request.app(scope, self._receive(content), gathered.send)
        return gathered.reply()

    async def pass_on(self, send: Send, path: str, query: Query, *, accept: str, name: str) -> None:
        """Send on what GET answers as a file, piece by piece, as it comes."""

        async def forward(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [
                    pair for pair in message["headers"] if pair[0] in (b"content-type", b"vary")
                ]
                if message["status"] == HTTPStatus.OK:
                    as_file = f'attachment; filename="{name}"'.encode()
                    kept.append((b"content-disposition", as_file))
                message["headers"] = kept
            await send(message)

        scope, content = self._scope("GET", path, query, accept, None)
        await self._request.app(scope, self._receive(content), forward)

    @staticmethod
    def _good(reply: InterfaceReply) -> Any:
        if not reply.is_good:
            raise RefusedError(reply.status, reply.message)
        return reply.body

    def _receive(self, content: bytes) -> Receive:
        """The body, and then whatever the browser does: it ends an answer by going away."""
        messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> Message:
            return messages.pop() if messages else await self._request.receive()

        return receive

    def _scope(
        self, method: str, path: str, query: Query, accept: str, body: Mapping[str, Any] | None
    ) -> tuple[Scope, bytes]:
        request = self._request
        content = b"" if body is None else orjson.dumps(body)
        headers = [
            *self._session,
            ("accept", accept),
            ("content-type", "application/json"),
            ("content-length", str(len(content))),
            ("x-request-id", str(request.scope.get("request_id", ""))),
        ]
        given = {name: value for name, value in query.items() if value not in (None, "")}
        scope: Scope = {
            "type": "http",
            "asgi": request.scope["asgi"],
            "http_version": "1.1",
            "method": method,
            "scheme": request.scope["scheme"],
            "path": PREFIX + path,
            "raw_path": (PREFIX + path).encode(),
            "root_path": "",
            "query_string": urlencode(given).encode(),
            "headers": [(name.encode(), _header(value)) for name, value in headers],
            "client": request.scope.get("client"),
            "server": request.scope.get("server"),
            "state": {},
        }
        return scope, content


def _header(value: str) -> bytes:
    """As HTTP carries it; an address that cannot be one is nobody's."""
    return value.encode("latin-1", errors="replace")


class _Gathered:
    """An answer as it is put together."""

    def __init__(self) -> None:
        self._status = 500
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            return
        self._body += message.get("body", b"")
        if len(self._body) > _LONGEST:
            raise OversizedAnswerError(f"an operation answered more than {_LONGEST} bytes")

    def reply(self) -> InterfaceReply:
        return InterfaceReply(self._status, orjson.loads(bytes(self._body) or b"null"))
