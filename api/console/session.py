"""The interface's session in a cookie, and the refusal of requests that other sites forged."""

import base64
import binascii
import hashlib
import hmac
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from api.console.interface import RefusedError

PATH = "/console"
FORGERY_FIELD = "forgery_token"
FORGERY_HEADER = "x-forgery-token"
_COOKIE = "proximity_session"
_LONGEST = 4096
_PURPOSE = b"a form of the console"


class SessionCookie(NamedTuple):
    """What the cookie holds: the two values that other clients send as headers."""

    email: str
    token: str

    @property
    def forgery_token(self) -> str:
        """What forms of this session carry; worth nothing without the cookie."""
        return hmac.new(self.token.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def read_cookie(request: Request) -> SessionCookie | None:
    """The session that the browser sends, valid or not."""
    email, separator, token = request.cookies.get(_COOKIE, "")[:_LONGEST].partition(".")
    if not separator or not token:
        return None
    try:
        padded = email + "=" * (-len(email) % 4)
        return SessionCookie(base64.urlsafe_b64decode(padded).decode(), token)
    except (binascii.Error, ValueError):
        return None


def set_cookie(response: Response, request: Request, session: SessionCookie, valid: str) -> None:
    """Keep the session in the browser until its end, unreadable by scripts and other sites."""
    left = datetime.strptime(valid, "%Y-%m-%dT%H:%M:%S%z") - datetime.now(UTC)
    email = base64.urlsafe_b64encode(session.email.encode()).decode().rstrip("=")
    response.set_cookie(
        _COOKIE,
        f"{email}.{session.token}",
        max_age=max(0, int(left.total_seconds())),
        path=PATH,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def delete_cookie(response: Response) -> None:
    """Have the browser forget the session."""
    response.delete_cookie(_COOKIE, path=PATH, httponly=True, samesite="strict")


def refuse_other_sites(request: Request) -> None:
    """Raise RefusedError unless the browser says that a page of this site sends the request.

    Sec-Fetch-Site is the browser's word on what it sees, also behind a proxy that changes the host;
    browsers leave it out on plain http elsewhere than on this machine, and then Origin counts.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site == "same-origin":
            return
    elif _same_host(request):
        return
    raise RefusedError(
        HTTPStatus.FORBIDDEN, "this request does not come from a page of the console"
    )


def refuse_forged(request: Request, session: SessionCookie, given: str) -> None:
    """Raise RefusedError unless the request carries what the session's own pages carry."""
    refuse_other_sites(request)
    given = request.headers.get(FORGERY_HEADER) or given
    if not hmac.compare_digest(given.encode(), session.forgery_token.encode()):
        raise RefusedError(HTTPStatus.FORBIDDEN, "the page is from another session: load it again")


def _same_host(request: Request) -> bool:
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")
