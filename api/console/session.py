"""The console's cookies, and the refusal of requests that other sites forged."""

import base64
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

from api.console.interface import RefusedError, SessionKey

PATH = "/console"
FORGERY_FIELD = "forgery_token"
LANGUAGE = "console_language"
_FORGERY_HEADER = "x-forgery-token"
SESSION = "proximity_session"
NOTICE = "console_done"
_NOTICE_SECONDS = 60
_NOTICES = ("saved", "created", "deleted", "restored")
_UNDO = re.compile(r"/venues/\d+(/[a-z]+/\d+)?/restore")
_LONGEST = 4096


def keep_cookie(response: Response, request: Request, name: str, value: str, seconds: int) -> None:
    """Keep a cookie in the browser that no script can read and no other site can use."""
    secure = request.url.scheme == "https"
    response.set_cookie(
        name, value, seconds, path=PATH, secure=secure, httponly=True, samesite="strict"
    )


def forget_cookie(response: Response, name: str) -> None:
    """Have the browser forget a cookie."""
    response.delete_cookie(name, path=PATH, httponly=True, samesite="strict")


def read_session(request: Request) -> SessionKey | None:
    """The session that the browser sends, valid or not."""
    email, _, token = request.cookies.get(SESSION, "")[:_LONGEST].partition(".")
    try:
        email = base64.urlsafe_b64decode(email + "=" * (-len(email) % 4)).decode()
    except ValueError:
        return None
    return SessionKey(email, token) if token else None


def keep_session(response: Response, request: Request, session: SessionKey, valid: str) -> None:
    """Keep the session in the browser until its end."""
    left = datetime.fromisoformat(valid) - datetime.now(UTC)
    email = base64.urlsafe_b64encode(session.email.encode()).decode().rstrip("=")
    value = f"{email}.{session.token}"
    keep_cookie(response, request, SESSION, value, max(0, int(left.total_seconds())))


class Notice(NamedTuple):
    """What a form has done: `text` by its key, the record's name, and the page that undoes it."""

    text: str
    name: str = ""
    undo: str = ""


def keep_notice(response: Response, request: Request, notice: Notice) -> None:
    """Have the browser bring the notice to the next page."""
    kept = orjson.dumps([notice.text, notice.name[:255], notice.undo])
    value = base64.urlsafe_b64encode(kept).decode()
    keep_cookie(response, request, NOTICE, value, _NOTICE_SECONDS)


def read_notice(request: Request) -> Notice | None:
    """The notice that the page before has left, if there is one."""
    try:
        raw = base64.urlsafe_b64decode(request.cookies.get(NOTICE, "")[:_LONGEST])
        text, name, undo = orjson.loads(raw)
        if text in _NOTICES and isinstance(name, str) and (not undo or _UNDO.fullmatch(undo)):
            return Notice(text, name, undo)
    except (ValueError, TypeError):
        pass  # not one of ours
    return None


def forgery_token(session: SessionKey) -> str:
    """What forms of this session carry; worth nothing without the cookie."""
    return hmac.new(session.token.encode(), b"a form of the console", hashlib.sha256).hexdigest()


def refuse_other_sites(request: Request) -> None:
    """Raise RefusedError unless the browser says that a page of this site sends the request.

    Sec-Fetch-Site is the browser's word on what it sees, also behind a proxy that changes the host;
    browsers leave it out on plain http elsewhere than on this machine, and then Origin counts.
    """
    site = request.headers.get("sec-fetch-site")
    if site is None:
        origin = urlsplit(request.headers.get("origin", "")).netloc
        is_own = bool(origin) and origin == request.headers.get("host")
    else:
        is_own = site == "same-origin"
    if not is_own:
        message = "this request does not come from a page of the console"
        raise RefusedError(HTTPStatus.FORBIDDEN, message)


def refuse_forged(request: Request, session: SessionKey, given: str) -> None:
    """Raise RefusedError unless the request carries what the session's own pages carry."""
    refuse_other_sites(request)
    given = request.headers.get(_FORGERY_HEADER) or given
    if not hmac.compare_digest(given.encode(), forgery_token(session).encode()):
        raise RefusedError(HTTPStatus.FORBIDDEN, "the page is from another session: load it again")
