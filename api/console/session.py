"""The interface's session in a cookie, and the refusal of requests that other sites forged."""

import base64
import binascii
import hashlib
import hmac
import re
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.console.interface import RefusedError

PATH = "/console"
FORGERY_FIELD = "forgery_token"
FORGERY_HEADER = "x-forgery-token"
_COOKIE = "proximity_session"
_LONGEST = 4096
NOTICES = ("saved", "created", "deleted", "restored")
_NOTICE = "console_done"
_NOTICE_SECONDS = 60
_UNDO = re.compile(r"/venues/\d+(/[a-z]+/\d+)?/restore")
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


class Notice(NamedTuple):
    """What a form has done: `text` by its key, the record's name, and the page that undoes it."""

    text: str
    name: str = ""
    undo: str = ""


def set_notice(response: Response, request: Request, notice: Notice) -> None:
    """Have the browser bring the notice to the next page."""
    kept = orjson.dumps([notice.text, notice.name[:255], notice.undo])
    response.set_cookie(
        _NOTICE,
        base64.urlsafe_b64encode(kept).decode(),
        max_age=_NOTICE_SECONDS,
        path=PATH,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def read_notice(request: Request) -> Notice | None:
    """The notice that the page before has left, if there is one."""
    try:
        raw = base64.urlsafe_b64decode(request.cookies.get(_NOTICE, "")[:_LONGEST])
        text, name, undo = orjson.loads(raw)
        if text in NOTICES and isinstance(name, str) and (not undo or _UNDO.fullmatch(undo)):
            return Notice(text, name, undo)
    except (ValueError, TypeError):
        pass  # not one of ours
    return None


def delete_notice(response: Response) -> None:
    """Have the browser forget the notice."""
    response.delete_cookie(_NOTICE, path=PATH, httponly=True, samesite="strict")


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
