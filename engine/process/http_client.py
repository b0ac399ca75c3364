"""One HTTP request with a deadline and a limit on the answer, to a server of the installation.

(Calls to customers' services pass the egress guard in `connectors/`.)
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx


class NoHttpError(Exception):
    """The answer is not valid HTTP, or is cut off."""


class AnswerTooLongError(Exception):
    """The answer is larger than the limit."""


class BoundedAnswer(NamedTuple):
    """A complete answer."""

    status: int
    body: bytes


async def fetch_bounded(
    url: str,
    *,
    tls: ssl.SSLContext,
    deadline: float,
    most_bytes: int,
    headers: Mapping[str, str],
    form: Mapping[str, str] | None = None,
    auth: httpx.Auth | None = None,
) -> BoundedAnswer:
    """The answer to GET, or to POST of a form, within `deadline` seconds.

    Raises OSError, TimeoutError, NoHttpError, AnswerTooLongError.
    """
    headers = {"accept-encoding": "identity", **headers}
    body = bytearray()
    try:
        async with (
            asyncio.timeout(deadline),
            httpx.AsyncClient(verify=tls, trust_env=False, timeout=None) as client,  # noqa: S113
            client.stream(
                "GET" if form is None else "POST", url, headers=headers, data=form, auth=auth
            ) as response,
        ):
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > most_bytes:
                    raise AnswerTooLongError(f"it has more than {most_bytes} bytes")
            return BoundedAnswer(response.status_code, bytes(body))
    except (httpx.ProtocolError, httpx.InvalidURL) as error:
        raise NoHttpError(f"speaks no HTTP: {error}") from error
    except httpx.TransportError as error:
        raise _os_error(error) from error


def _os_error(error: BaseException) -> OSError:
    """The system's error behind one of httpx."""
    found, cause = OSError(str(error)), error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, OSError):
            found = cause
        cause = cause.__cause__ or cause.__context__
    return found
