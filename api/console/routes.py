"""The routes of the console, and the checks around each page: session, forgery, refusals."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from api.console.context import PageContext
from api.console.forms import PostedForm, read_form
from api.console.interface import RefusedError, SessionKey
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
    forget_session,
    read_session,
    refuse_forged,
)
from api.console.texts import translations_for
from api.permissions import Services, services_of
from api.sessions import SignedIn

Endpoint = Callable[[Request], Awaitable[Response]]
PageHandler = Callable[[PageContext], Awaitable[Response]]

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


class ConsoleRoute(Route):
    """The route of a page; log and metrics name it by its template, as they name other routes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as any route does, and put the route into the scope."""
        match, child = super().matches(scope)
        return match, child if match is Match.NONE else {**child, "route": self}


def console_routes() -> list[Route]:
    """The routes of the console. The last one answers all other paths with 404."""
    entrance = (
        ConsoleRoute("/", _to_console, methods=["GET"]),
        ConsoleRoute(f"{PATH}/static/{{name}}", _with_refusals(serve_asset), methods=["GET"]),
        ConsoleRoute(f"{PATH}/sign-in", _with_refusals(sign_in.show), methods=["GET"]),
        ConsoleRoute(f"{PATH}/sign-in", _with_refusals(sign_in.sign_in), methods=["POST"]),
        ConsoleRoute(f"{PATH}/language", _with_refusals(sign_in.choose_language), methods=["POST"]),
    )
    pages = [
        ConsoleRoute(PATH + path, _with_refusals(_signed_in(page)), methods=[method])
        for method, path, page in _PAGES
    ]
    rest = ConsoleRoute(PATH + "/{path:path}", _with_refusals(_not_found), methods=["GET", "POST"])
    return [*entrance, *pages, rest]


def _signed_in(page: PageHandler) -> Endpoint:
    """A page that needs a session. Without one the browser is redirected to the sign-in."""

    async def signed_in(request: Request) -> Response:
        session = read_session(request)
        account = None if session is None else await _account(services_of(request), session)
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

    return signed_in


async def _account(services: Services, session: SessionKey) -> SignedIn | None:
    try:
        return await services.sessions.find(session.email, session.token)
    except (SQLAlchemyError, OSError):
        message = "the database does not answer; try again"
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message) from None


def _with_refusals(endpoint: Endpoint) -> Endpoint:
    """Answer a RefusedError with a page; if the session has ended, redirect to the sign-in."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RefusedError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                return _to_sign_in(request)
            values = {"status": error.status, "message": error.message}
            is_part = "hx-request" in request.headers
            template = "refused.html#part" if is_part else "refused.html"
            return rendered(template, translations_for(request), values, error.status)

    return answered


def _to_sign_in(request: Request) -> Response:
    address = f"{PATH}/sign-in"
    if request.headers.get("hx-request"):
        # htmx would put the sign-in form into a part of the page, so the whole page is redirected.
        answer = Response(status_code=HTTPStatus.NO_CONTENT, headers={"hx-redirect": address})
    else:
        answer = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    forget_session(answer)
    return answer


async def _to_console(_request: Request) -> Response:
    return RedirectResponse(PATH.removeprefix("/"))


async def _not_found(request: Request) -> Response:
    if request.url.path == f"{PATH}/":
        return RedirectResponse(PATH)
    raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
