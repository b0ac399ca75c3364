"""Calls the /v2 operations inside the process, with the session of the user.

A call passes the whole application, so permissions, limits, audit, log and metrics apply as they do
to any other client.
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

_LONGEST = 16 * 1024 * 1024  # bytes of an answer; pages request few records
Query = Mapping[str, object]


class InterfaceReply(NamedTuple):
    """The answer of an operation."""

    status: int
    body: Any

    @property
    def fields(self) -> dict[str, str]:
        """The faults, by the place of the field."""
        return dict(self.body.get("fields", {})) if isinstance(self.body, dict) else {}

    @property
    def message(self) -> str:
        """The error message of the interface; empty after a success."""
        if not isinstance(self.body, dict):
            return ""
        return str(self.body.get("message") or self.body.get("error_message") or "")

    @property
    def is_success(self) -> bool:
        """Whether the operation succeeded."""
        return self.status < 400


class InterfaceClient:
    """Calls operations for one request of a browser; `email` and `token` are of its session."""

    def __init__(self, request: Request, *, email: str = "", token: str = "") -> None:
        self._request = request
        self._session = [(KEY_HEADER, email), (TOKEN_HEADER, token)] if token else []

    async def get(self, path: str, **query: object) -> Any:
        """The body of the answer to a GET. Raises RefusedError if the operation fails."""
        return self._body_of(await self.call("GET", path, query=query))

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Query | None = None,
    ) -> InterfaceReply:
        """Call an operation. Returns its answer, also that of a failure."""
        buffered = _BufferedReply()
        scope, content = self._scope(method, path, query or {}, "application/json", body)
        await self._request.app(scope, self._receive(content), buffered.send)
        return buffered.reply()

    async def stream_file(
        self, send: Send, path: str, query: Query, *, accept: str, name: str
    ) -> None:
        """Send the answer to a GET to the browser as a file `name`, without buffering it."""

        async def forward(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    pair for pair in message["headers"] if pair[0] in (b"content-type", b"vary")
                ]
                if message["status"] == HTTPStatus.OK:
                    as_file = f'attachment; filename="{name}"'.encode()
                    headers.append((b"content-disposition", as_file))
                message["headers"] = headers
            await send(message)

        scope, content = self._scope("GET", path, query, accept, None)
        await self._request.app(scope, self._receive(content), forward)

    @staticmethod
    def _body_of(reply: InterfaceReply) -> Any:
        if not reply.is_success:
            raise RefusedError(reply.status, reply.message)
        return reply.body

    def _receive(self, content: bytes) -> Receive:
        """Receives the body, then the messages of the browser, such as its disconnection."""
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
        present = {name: value for name, value in query.items() if value not in (None, "")}
        scope: Scope = {
            "type": "http",
            "asgi": request.scope["asgi"],
            "http_version": "1.1",
            "method": method,
            "scheme": request.scope["scheme"],
            "path": PREFIX + path,
            "raw_path": (PREFIX + path).encode(),
            "root_path": "",
            "query_string": urlencode(present).encode(),
            "headers": [(name.encode(), _header(value)) for name, value in headers],
            "client": request.scope.get("client"),
            "server": request.scope.get("server"),
            "state": {},
        }
        return scope, content


def _header(value: str) -> bytes:
    """The value of a header in Latin-1. Other characters are replaced: no account has them."""
    return value.encode("latin-1", errors="replace")


class _BufferedReply:
    """Collects the messages of an answer."""

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
