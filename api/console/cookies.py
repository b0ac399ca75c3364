"""The console's cookies, and the refusal of requests that other sites forged."""

from datetime import timedelta
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.answers import ApiError

PATH = "/console"
SESSION = "proximity_session"
NOTICE = "console_done"


class Notice(NamedTuple):
    """What a form has done: `text` by its key, the record's name, and the page that undoes it."""

    text: str
    name: str = ""
    undo: str = ""


def keep(response: Response, request: Request, name: str, value: str, time: timedelta) -> None:
    """Keep a cookie in the browser that no script can read and no other site can use."""
    secure, seconds = request.url.scheme == "https", int(time.total_seconds())
    response.set_cookie(
        name, value, seconds, path=PATH, secure=secure, httponly=True, samesite="strict"
    )


def forget(response: Response, name: str) -> None:
    """Have the browser forget a cookie."""
    response.delete_cookie(name, path=PATH, httponly=True, samesite="strict")


def keep_notice(response: Response, request: Request, notice: Notice) -> None:
    """Have the browser bring the notice to the next page."""
    kept = orjson.dumps([notice.text, notice.name[:255], notice.undo])
    keep(response, request, NOTICE, quote(kept), timedelta(minutes=1))


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
