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
from starlette.types import Message, Send

from api.permissions import KEY_HEADER, PREFIX, TOKEN_HEADER

Query = Mapping[str, object]


class RefusedError(Exception):
    """An operation, or the console itself, refused the request; a page shows the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


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
        self._session = {KEY_HEADER: email, TOKEN_HEADER: token} if token else {}

    async def get(self, path: str, **query: object) -> Any:
        """The body of the answer to a GET. Raises RefusedError if the operation fails."""
        reply = await self.call("GET", path, query=query)
        if not reply.is_success:
            raise RefusedError(reply.status, reply.message)
        return reply.body

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Query | None = None,
    ) -> InterfaceReply:
        """Call an operation. Returns its answer, also that of a failure."""
        status, answered = 500, bytearray()

        async def collect(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            answered.extend(message.get("body", b""))

        content = b"" if body is None else orjson.dumps(body)
        await self._run(method, path, query or {}, "application/json", content, collect)
        return InterfaceReply(status, orjson.loads(bytes(answered) or b"null"))

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

        await self._run("GET", path, query, accept, b"", forward)

    async def _run(
        self, method: str, path: str, query: Query, accept: str, content: bytes, send: Send
    ) -> None:
        """Pass a request to the application, and its answer to `send`."""
        request = self._request
        headers = {
            **self._session,
            "accept": accept,
            "content-type": "application/json",
            "content-length": str(len(content)),
            "x-request-id": str(request.scope.get("request_id", "")),
        }
        present = {name: value for name, value in query.items() if value not in (None, "")}
        inherited = ("type", "asgi", "scheme", "client", "server")
        scope = {name: request.scope.get(name) for name in inherited} | {
            "http_version": "1.1",
            "method": method,
            "path": PREFIX + path,
            "raw_path": (PREFIX + path).encode(),
            "root_path": "",
            "query_string": urlencode(present).encode(),
            # Other characters than Latin-1 are replaced: no account has them.
            "headers": [
                (name.encode(), value.encode("latin-1", errors="replace"))
                for name, value in headers.items()
            ],
            "state": {},
        }
        messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> Message:
            """The body, then the messages of the browser, such as its disconnection."""
            return messages.pop() if messages else await request.receive()

        await request.app(scope, receive, send)
