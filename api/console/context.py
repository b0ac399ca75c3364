"""The context of a page: a request of a signed-in user, and the operations of /v2 it calls."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

import httpx
import orjson
from fastapi import Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.answers import ApiError
from api.console.forms import PostedForm, read_form
from api.console.rendering import PATH, rendered
from api.console.texts import Translations, translations_for, zone_named
from api.permissions import AREA_OF, KEY_HEADER, PREFIX, TOKEN_HEADER, services_of
from api.sessions import LIFETIME, SignedIn
from catalog.inputs import READ, WRITE, is_id

A_PAGE = 50
_VENUES = 500
_SESSION = "proximity_session"
_NOTICE = "console_done"


class Notice(NamedTuple):
    """What a form has done: `text` by its key, the record's name, and the page that undoes it."""

    text: str
    name: str = ""
    undo: str = ""


def _keep(response: Response, request: Request, name: str, value: str, time: timedelta) -> None:
    """Keep a cookie in the browser that no script can read and no form of other sites sends.

    It comes with their links: the visitor is signed in behind them, too.
    """
    secure, seconds = request.url.scheme == "https", int(time.total_seconds())
    response.set_cookie(
        name, value, seconds, path=PATH, secure=secure, httponly=True, samesite="lax"
    )


def _kept_notice(request: Request) -> Notice | None:
    """The notice that the page before has left, if there is one."""
    try:
        return Notice(*orjson.loads(unquote(request.cookies.get(_NOTICE, ""))))
    except (ValueError, TypeError):
        return None


def keep_session(response: Response, request: Request, token: str) -> None:
    """Keep the token of a session in the browser until its end."""
    _keep(response, request, _SESSION, token, LIFETIME)


def forget_session(response: Response) -> None:
    """Have the browser forget the session."""
    response.delete_cookie(_SESSION, path=PATH)


async def call_interface(
    request: Request,
    method: str,
    path: str,
    body: Any = None,
    query: Mapping[str, object] | None = None,
    session: Mapping[str, str] | None = None,
) -> httpx.Response:
    """The answer of an operation. Empty query parameters are left out. Raises ApiError.

    The call passes the whole application inside the process, so permissions, limits, audit, log and
    metrics apply as they do to any other client.
    """
    headers = {"x-request-id": str(request.scope.get("request_id", "")), **(session or {})}
    host, port = request.client or ("", 0)
    transport = httpx.ASGITransport(request.app, raise_app_exceptions=False, client=(host, port))
    async with httpx.AsyncClient(transport=transport, base_url=str(request.base_url)) as client:
        reply = await client.request(
            method,
            PREFIX + path,
            json=body,
            params={
                name: str(each) for name, each in (query or {}).items() if each not in (None, "")
            },
            headers=httpx.Headers(headers, encoding="utf-8"),
        )
    if not reply.is_success:
        error = reply.json()
        message = error.get("message") or error["error_message"]
        later = {name: text for name, text in reply.headers.items() if name == "retry-after"}
        raise ApiError(reply.status_code, message, error.get("fields", {}), later)
    return reply


class RecordList(NamedTuple):
    """The records of one page of a list, and how many were found in all."""

    records: list[dict[str, Any]]
    total: int


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """A request of a signed-in user; `form` is empty for a GET."""

    request: Request
    texts: Translations
    account: SignedIn
    token: str
    form: PostedForm

    @property
    def now(self) -> datetime:
        """The present time, in UTC."""
        return services_of(self.request).clock()

    @property
    def path(self) -> str:
        """The path of the page below the console's."""
        return self.request.url.path.removeprefix(PATH)

    @property
    def is_new(self) -> bool:
        """Whether the page is the form of a new record."""
        return self.path.endswith("/new")

    def may_read(self, record: str) -> bool:
        """Whether to show links to records of this kind. (/v2 checks the permission again.)"""
        return self.account.level(AREA_OF[record]) >= READ

    def may_write(self, record: str) -> bool:
        """Whether to show forms that change records of this kind."""
        return self.account.level(AREA_OF[record]) >= WRITE

    def path_number(self, name: str) -> int:
        """A numeric parameter of the path."""
        return int(self.request.path_params[name])

    def query(self, name: str) -> str:
        """A query parameter; empty if it is absent."""
        return self.request.query_params.get(name, "")

    def query_number(self, name: str) -> int:
        """A query parameter that is a number; 0 if it is absent or invalid."""
        text = self.query(name)
        return int(text) if is_id(text) else 0

    def here(self, **changes: object) -> str:
        """The query of this page with some parameters changed."""
        return "?" + urlencode({**self.request.query_params, **changes})

    async def call(
        self, method: str, path: str, body: Any = None, **query: object
    ) -> httpx.Response:
        """The answer of an operation. Raises ApiError if it fails."""
        session = {KEY_HEADER: self.account.email, TOKEN_HEADER: self.token}
        return await call_interface(self.request, method, path, body, query, session)

    async def ask(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        """The body of the answer of an operation. Raises ApiError if it fails."""
        return (await self.call(method, path, body, **query)).json()

    async def get(self, path: str, **query: object) -> Any:
        """The body of the answer to a GET. Raises ApiError if the operation fails."""
        return await self.ask("GET", path, **query)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template, or a block of it (`overview.html#figures`).

        A whole page also says what the form before it has done, once.
        """
        done = None if "#" in template else _kept_notice(self.request)
        given = {"context": self, "done": done, **values}
        answer = rendered(template, self.texts, given, status)
        if done is not None:
            answer.delete_cookie(_NOTICE, path=PATH)
        return answer

    def form_page(
        self,
        template: str,
        record: str,
        values: dict[str, Any],
        refusal: ApiError | None = None,
        **more: Any,
    ) -> Response:
        """Render the form of a record, with the faults of the values if they were refused.

        Values that are not given are empty.
        """
        return self.page(
            template,
            refusal.status if refusal else 200,
            values=defaultdict(str, values),
            faults=refusal.fields if refusal else {},
            message=refusal.message if refusal else "",
            may_write=self.may_write(record),
            **more,
        )

    def redirect(self, path: str, done: Notice | None = None) -> Response:
        """Redirect to another page of the console, which says what a form has done."""
        answer = RedirectResponse(f"{PATH}{path}", 303)
        if done is not None:
            kept = quote(orjson.dumps([*done]))
            _keep(answer, self.request, _NOTICE, kept, timedelta(minutes=1))
        return answer

    async def venues(self) -> list[dict[str, Any]]:
        """The venues to choose from; none if the account may not read them."""
        if not self.may_read("venue"):
            return []
        found: list[dict[str, Any]] = await self.get("/region", sort="name", limit=_VENUES)
        return found

    async def local_now(self) -> datetime:
        """The present time: the venues' local time if they all have the same, else UTC."""
        zones = {venue["time_zone"] or "UTC" for venue in await self.venues()}
        return self.now.astimezone(zone_named(zones.pop() if len(zones) == 1 else "UTC"))

    async def listed(self, path: str, *, sort: str = "name") -> RecordList:
        """A page of the list that an operation returns. Raises ApiError.

        The query says what is searched, in which state, and how the list is sorted.
        """
        reply = await self.call(
            "GET",
            path,
            search=self.query("search"),
            active={"on": "true", "off": "false"}.get(self.query("state")),
            sort=self.query("sort") or sort,
            offset=self.query_number("offset"),
            limit=A_PAGE,
        )
        return RecordList(reply.json(), int(reply.headers["x-total"]))


async def page_context(request: Request) -> PageContext:
    """The context of a page for the visitor's session. Raises ApiError 401 without one."""
    token = request.cookies.get(_SESSION, "")
    account = await services_of(request).sessions.find(token)
    if account is None:
        raise ApiError(401, "no session")
    form = PostedForm()
    if request.method == "POST":
        form = await read_form(request)
    request.scope["company"] = account.company_id
    texts = translations_for(request)
    return PageContext(request=request, texts=texts, account=account, token=token, form=form)


Context = Annotated[PageContext, Depends(page_context)]


def refused(request: Request, error: ApiError) -> Response:
    """The page, or the part of one, that a refused request gets; without a session the sign-in."""
    is_part = "hx-request" in request.headers
    if error.status == 401:
        address = f"{PATH}/sign-in"
        page = request.url.path.removeprefix(PATH)
        page += f"?{request.url.query}" if request.url.query else ""
        if is_part:  # htmx would put the form into the part: redirect the whole page
            answer = Response(status_code=204, headers={"hx-redirect": address})
        elif request.method == "GET" and page:
            answer = RedirectResponse(f"{address}?next={quote(page)}", 303)
        else:
            answer = RedirectResponse(address, 303)
        if _SESSION in request.cookies:
            forget_session(answer)
        return answer
    faults = "; ".join(f"{place}: {fault}" for place, fault in error.fields.items())
    values = {"status": error.status, "message": faults or error.message}
    template = "sign_in.html#part" if is_part else "sign_in.html"
    return rendered(template, translations_for(request), values, error.status, error.headers)
