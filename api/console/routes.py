"""The routes of the console, and the checks around each page: session, forgery, refusals."""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.context import PageContext
from api.console.forms import PostedForm, read_form
from api.console.interface import RefusedError
from api.console.pages import (
    activity,
    campaigns,
    devices,
    overview,
    records,
    settings,
    sheets,
    sign_in,
    statistics,
    venues,
)
from api.console.rendering import rendered, serve_asset
from api.console.session import (
    FORGERY_FIELD,
    PATH,
    SESSION,
    forget_cookie,
    read_session,
    refuse_forged,
)
from api.console.texts import translations_for
from api.permissions import services_of

PageHandler = Callable[[PageContext], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]

_OPEN_PAGES: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/static/{name}", serve_asset),
    ("GET", "/sign-in", sign_in.show),
    ("POST", "/sign-in", sign_in.sign_in),
    ("POST", "/language", sign_in.choose_language),
)
_PAGES: tuple[tuple[str, str, PageHandler], ...] = (
    *overview.PAGES,
    *activity.PAGES,
    *records.PAGES,
    *sheets.PAGES,
    *venues.PAGES,
    *campaigns.PAGES,
    *devices.PAGES,
    *settings.PAGES,
    *statistics.PAGES,
    *sign_in.PAGES,
)


def console_routes() -> list[APIRoute]:
    """The routes of the console. The last one answers all other paths with 404."""
    endpoints: list[tuple[str, str, Endpoint]] = [
        *_OPEN_PAGES,
        *((method, path, partial(_signed_in, page)) for method, path, page in _PAGES),
        *((method, "/{path:path}", _not_found) for method in ("GET", "POST")),
    ]
    routes = [APIRoute("/", _to_console, include_in_schema=False)]
    for method, path, endpoint in endpoints:
        page = partial(_with_refusals, endpoint)
        routes.append(APIRoute(PATH + path, page, methods=[method], include_in_schema=False))
    return routes


async def _with_refusals(endpoint: Endpoint, request: Request) -> Response:
    """Answer a RefusedError with a page; if the session has ended, redirect to the sign-in."""
    try:
        return await endpoint(request)
    except RefusedError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            return _to_sign_in(request)
        template = "sign_in.html#part" if "hx-request" in request.headers else "sign_in.html"
        values = {"status": error.status, "message": error.message}
        return rendered(template, translations_for(request), values, error.status)


async def _signed_in(page: PageHandler, request: Request) -> Response:
    """A page that needs a session. Without one the browser is redirected to the sign-in."""
    session, account = read_session(request), None
    if session is not None:
        account = await services_of(request).sessions.find(session.email, session.token)
    if session is None or account is None:
        return _to_sign_in(request)
    form = PostedForm()
    if request.method == "POST":
        form = await read_form(request)
        refuse_forged(request, session, form.get(FORGERY_FIELD, ""))
    request.scope["company"] = account.company_id
    texts = translations_for(request)
    return await page(
        PageContext(request=request, texts=texts, account=account, session=session, form=form)
    )


def _to_sign_in(request: Request) -> Response:
    address = f"{PATH}/sign-in"
    answer: Response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    if "hx-request" in request.headers:
        # htmx would put the sign-in form into a part of the page, so the whole page is redirected.
        answer = Response(status_code=HTTPStatus.NO_CONTENT, headers={"hx-redirect": address})
    forget_cookie(answer, SESSION)
    return answer


async def _to_console(_request: Request) -> Response:
    return RedirectResponse(PATH.removeprefix("/"))


async def _not_found(request: Request) -> Response:
    if request.url.path == f"{PATH}/":
        return RedirectResponse(PATH)
    raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
