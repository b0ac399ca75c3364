"""Calls the /v2 operations inside the process, with the session of the user.

A call passes the whole application, so permissions, limits, audit, log and metrics apply as they do
to any other client.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.permissions import KEY_HEADER, PREFIX, TOKEN_HEADER

Query = Mapping[str, object]
_JSON = "application/json"


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
        self._request_id = str(request.scope.get("request_id", ""))
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
        content = b"" if body is None else orjson.dumps(body)
        answer = await self._send(method, path, query or {}, content=content)
        return InterfaceReply(answer.status_code, orjson.loads(answer.content or b"null"))

    async def file(self, path: str, query: Query, *, accept: str, name: str) -> Response:
        """The answer to a GET, as a file `name` for the browser."""
        found = await self._send("GET", path, query, accept=accept)
        headers = {"content-type": found.headers["content-type"], "vary": "accept"}
        if found.is_success:
            headers["content-disposition"] = f'attachment; filename="{name}"'
        return Response(found.content, found.status_code, headers)

    async def _send(
        self, method: str, path: str, query: Query, *, content: bytes = b"", accept: str = _JSON
    ) -> httpx.Response:
        request = self._request
        headers = {"accept": accept, "content-type": _JSON, "x-request-id": self._request_id}
        sent = httpx.Request(
            method,
            f"{request.base_url}{PREFIX.removeprefix('/')}{path}",
            params={name: str(value) for name, value in query.items() if value not in (None, "")},
            # Other characters than Latin-1 are replaced: no account has them.
            headers=[
                (name.encode(), value.encode("latin-1", errors="replace"))
                for name, value in (self._session | headers).items()
            ],
            content=content,
        )
        client = request.client or ("", 0)
        transport = httpx.ASGITransport(
            request.app, raise_app_exceptions=False, client=(client[0], client[1])
        )
        answer = await transport.handle_async_request(sent)
        await answer.aread()
        return answer
