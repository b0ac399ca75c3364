"""The console's cookies, and the refusal of requests that other sites forged."""

from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.answers import ApiError

PATH = "/console"
SESSION = "proximity_session"
NOTICE = "console_done"


class SessionKey(NamedTuple):
    """The two values that name a session of the interface."""

    email: str
    token: str


class Notice(NamedTuple):
    """What a form has done: `text` by its key, the record's name, and the page that undoes it."""

    text: str
    name: str = ""
    undo: str = ""


def keep(response: Response, request: Request, name: str, value: str, seconds: int) -> None:
    """Keep a cookie in the browser that no script can read and no other site can use."""
    secure = request.url.scheme == "https"
    response.set_cookie(
        name, value, seconds, path=PATH, secure=secure, httponly=True, samesite="strict"
    )


def forget(response: Response, name: str) -> None:
    """Have the browser forget a cookie."""
    response.delete_cookie(name, path=PATH, httponly=True, samesite="strict")


def read_session(request: Request) -> SessionKey:
    """The session that the browser sends, valid or not."""
    email, _, token = request.cookies.get(SESSION, "").rpartition(".")
    return SessionKey(unquote(email, "latin-1"), token)


def keep_session(response: Response, request: Request, session: SessionKey, valid: str) -> None:
    """Keep the session in the browser until its end."""
    left = datetime.fromisoformat(valid) - datetime.now(UTC)
    # In the characters that the header of a request can have.
    email = quote(session.email, encoding="latin-1", errors="replace")
    keep(response, request, SESSION, f"{email}.{session.token}", int(left.total_seconds()))


def keep_notice(response: Response, request: Request, notice: Notice) -> None:
    """Have the browser bring the notice to the next page."""
    kept = orjson.dumps([notice.text, notice.name[:255], notice.undo])
    keep(response, request, NOTICE, quote(kept), seconds=60)


def read_notice(request: Request) -> Notice | None:
    """The notice that the page before has left, if there is one."""
    try:
        return Notice(*orjson.loads(unquote(request.cookies.get(NOTICE, ""))))
    except (ValueError, TypeError):
        return None


def refuse_other_sites(request: Request) -> None:
    """Raise ApiError unless the browser says that a page of this site sends the request.

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
        raise ApiError(403, "this request does not come from a page of the console")
