"""The routes of the console, the checks around each page, signing in and out, the language."""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.answers import ApiError
from api.console.context import PageContext, call_interface
from api.console.forms import PostedForm, read_form
from api.console.pages import (
    activity,
    campaigns,
    devices,
    overview,
    records,
    settings,
    sheets,
    statistics,
    venues,
)
from api.console.rendering import rendered, serve_asset
from api.console.session import (
    FORGERY_FIELD,
    LANGUAGE,
    PATH,
    SESSION,
    SessionKey,
    forget_cookie,
    keep_cookie,
    keep_session,
    read_session,
    refuse_forged,
    refuse_other_sites,
)
from api.console.texts import LANGUAGES, translations_for
from api.permissions import services_of

PageHandler = Callable[[PageContext], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]

_YEAR = 365 * 24 * 3600
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
)


def console_routes() -> list[APIRoute]:
    """The routes of the console. The last one answers all other paths with 404."""
    endpoints: list[tuple[str, str, Endpoint]] = [
        ("GET", "/static/{name}", serve_asset),
        ("GET", "/sign-in", _show_sign_in),
        ("POST", "/sign-in", _sign_in),
        ("POST", "/language", _choose_language),
        ("POST", "/sign-out", partial(_signed_in, _sign_out)),
        *((method, path, partial(_signed_in, page)) for method, path, page in _PAGES),
        *((method, "/{path:path}", _not_found) for method in ("GET", "POST")),
    ]
    routes = [APIRoute("/", _to_console, include_in_schema=False)]
    for method, path, endpoint in endpoints:
        page = partial(_with_refusals, endpoint)
        routes.append(APIRoute(PATH + path, page, methods=[method], include_in_schema=False))
    return routes


async def _with_refusals(endpoint: Endpoint, request: Request) -> Response:
    """Answer an ApiError with a page; if the session has ended, redirect to the sign-in."""
    try:
        return await endpoint(request)
    except ApiError as error:
        if request.headers.get("accept") == "application/json":
            raise  # a script reads the answer of the interface
        if error.status == HTTPStatus.UNAUTHORIZED:
            return _to_sign_in(request)
        faults = "; ".join(f"{place}: {fault}" for place, fault in error.fields.items())
        template = "sign_in.html#part" if "hx-request" in request.headers else "sign_in.html"
        values = {"status": error.status, "message": faults or error.message}
        return rendered(template, translations_for(request), values, error.status)


async def _signed_in(page: PageHandler, request: Request) -> Response:
    """A page that needs a session. Without one the browser is redirected to the sign-in."""
    session = read_session(request)
    account = await services_of(request).sessions.find(session.email, session.token)
    if account is None:
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


async def _show_sign_in(
    request: Request, message: str = "", email: str = "", status: int = 200
) -> Response:
    """Show the form."""
    values = {"message": message, "email": email, "status": 0}
    return rendered("sign_in.html", translations_for(request), values, status)


async def _sign_in(request: Request) -> Response:
    """Sign in with POST /v2/auth, and put the session into the cookie."""
    refuse_other_sites(request)
    form = await read_form(request)
    credentials = {name: form.get(name, "") for name in ("email", "password")}
    try:
        reply = await call_interface(request, SessionKey("", ""), "POST", "/auth", credentials)
    except ApiError as error:
        is_wrong = error.status == HTTPStatus.NOT_FOUND
        message = translations_for(request)("sign_in_wrong") if is_wrong else error.message
        return await _show_sign_in(request, message, credentials["email"], error.status)
    granted = reply.json()["session"]
    answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    session = SessionKey(granted["email"], granted["token"])
    keep_session(answer, request, session, granted["valid"])
    return answer


async def _choose_language(request: Request) -> Response:
    """Store the chosen language in a cookie."""
    refuse_other_sites(request)
    chosen = (await read_form(request)).get("language", "")
    answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    if chosen in LANGUAGES:
        keep_cookie(answer, request, LANGUAGE, chosen, _YEAR)
    return answer


async def _sign_out(context: PageContext) -> Response:
    """End the session in every process."""
    await context.call("DELETE", "/auth")
    answer = context.redirect("/sign-in")
    forget_cookie(answer, SESSION)
    return answer


async def _to_console(_request: Request) -> Response:
    return RedirectResponse(PATH.removeprefix("/"))


async def _not_found(request: Request) -> Response:
    if request.url.path == f"{PATH}/":
        return RedirectResponse(PATH)
    raise ApiError(HTTPStatus.NOT_FOUND, "there is no such page")
