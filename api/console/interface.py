"""Calls /v2 operations inside the process, with the session of the user.

A call passes the whole application, so permissions, limits, audit, log and metrics apply as they do
to any other client.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
from starlette.requests import Request

from api.permissions import KEY_HEADER, PREFIX, TOKEN_HEADER


class RefusedError(Exception):
    """An operation, or the console itself, refused the request; a page shows the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class SessionKey(NamedTuple):
    """The two values that name a session of the interface."""

    email: str
    token: str


async def call_interface(
    request: Request,
    session: SessionKey | None,
    method: str,
    path: str,
    body: Any = None,
    *,
    query: Mapping[str, object],
) -> httpx.Response:
    """The answer of an operation, also that of a failure. Empty query parameters are left out."""
    headers = {"x-request-id": str(request.scope.get("request_id", ""))}
    if session is not None:
        headers |= {KEY_HEADER: session.email, TOKEN_HEADER: session.token}
    host, port = request.client or ("", 0)
    transport = httpx.ASGITransport(request.app, raise_app_exceptions=False, client=(host, port))
    given = {name: value for name, value in query.items() if value not in (None, "")}
    async with httpx.AsyncClient(
        transport=transport, base_url=str(request.base_url), trust_env=False
    ) as client:
        return await client.request(
            method,
            PREFIX + path,
            json=body,
            params={name: str(value) for name, value in given.items()},
            # Other characters than Latin-1 are replaced: no account has them.
            headers=[(n.encode(), v.encode("latin-1", "replace")) for n, v in headers.items()],
        )


def message_of(reply: httpx.Response) -> str:
    """The error message of a failed operation; empty after a success."""
    if reply.is_success:
        return ""
    body = reply.json()
    return str(body.get("message") or body.get("error_message"))


def faults_of(reply: httpx.Response) -> dict[str, str]:
    """The faults of a failed operation, by the place of the field."""
    return {} if reply.is_success else dict(reply.json().get("fields", {}))
