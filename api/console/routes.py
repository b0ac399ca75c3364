"""The addresses of the console, and what stands around each page: session, forgery, refusals."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from api.console.assets import serve_asset
from api.console.errors import RefusedError
from api.console.forms import PostedForm, read_form
from api.console.interface import InterfaceClient
from api.console.pages import (
    audit,
    campaigns,
    connector,
    devices,
    explain,
    live,
    overview,
    places,
    roles,
    sign_in,
    statistics,
    venues,
)
from api.console.rendering import rendered
from api.console.session import (
    FORGERY_FIELD,
    PATH,
    SessionCookie,
    delete_cookie,
    read_cookie,
    refuse_forged,
)
from api.console.visit import Visit
from api.console.words import words_for
from api.permissions import services_of
from api.services import Services
from api.sessions.check import SignedIn

Endpoint = Callable[[Request], Awaitable[Response]]
PageOf = Callable[[Visit], Awaitable[Response]]

_PAGES: tuple[tuple[str, str, PageOf], ...] = (
    *overview.PAGES,
    *roles.PAGES,
    *live.PAGES,
    *venues.PAGES,
    *places.PAGES,
    *campaigns.PAGES,
    *explain.PAGES,
    *devices.PAGES,
    *connector.PAGES,
    *statistics.PAGES,
    *audit.PAGES,
    *sign_in.PAGES,
)


class ConsoleRoute(Route):
    """A page's address; log and metrics name it as they name the interface's own."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As every route does."""
        match, child = super().matches(scope)
        return match, child if match is Match.NONE else {**child, "route": self}


def console_routes() -> list[Route]:
    """The routes of the console. The last one answers every address that no page has."""
    entrance = (
        ConsoleRoute("/", _to_console, methods=["GET"]),
        ConsoleRoute(f"{PATH}/static/{{name}}", _safely(serve_asset), methods=["GET"]),
        ConsoleRoute(f"{PATH}/sign-in", _safely(sign_in.show), methods=["GET"]),
        ConsoleRoute(f"{PATH}/sign-in", _safely(sign_in.sign_in), methods=["POST"]),
        ConsoleRoute(f"{PATH}/language", _safely(sign_in.choose_language), methods=["POST"]),
    )
    pages = [
        ConsoleRoute(PATH + path, _safely(_visited(page)), methods=[method])
        for method, path, page in _PAGES
    ]
    rest = ConsoleRoute(PATH + "/{path:path}", _safely(_nowhere), methods=["GET", "POST"])
    return [*entrance, *pages, rest]


def _visited(page: PageOf) -> Endpoint:
    """The page for visitors with a session; other visitors are redirected to the sign-in."""

    async def visited(request: Request) -> Response:
        session = read_cookie(request)
        services = services_of(request)
        account = None
        if session is not None:
            account = await _account(services, session)
        if session is None or account is None:
            return _to_sign_in(request)
        form = PostedForm({})
        if request.method == "POST":
            form = await read_form(request, services.limits)
            refuse_forged(request, session, form.text(FORGERY_FIELD))
        request.scope["company"] = account.company_id
        visit = Visit(
            request=request,
            words=words_for(request),
            account=account,
            session=session,
            interface=_client(request, session),
            form=form,
        )
        return await page(visit)

    return visited


async def _account(services: Services, session: SessionCookie) -> SignedIn | None:
    try:
        return await services.sessions.find(session.email, session.token)
    except (SQLAlchemyError, OSError):
        message = "the database does not answer; try again"
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message) from None


def _client(request: Request, session: SessionCookie) -> InterfaceClient:
    return InterfaceClient(request, email=session.email, token=session.token)


def _safely(endpoint: Endpoint) -> Endpoint:
    """A refusal is a page, too; a session that ended on the way leads to a new one."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RefusedError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                return _to_sign_in(request)
            values = {"status": error.status, "message": error.message}
            is_part = "hx-request" in request.headers
            template = "part_refused.html" if is_part else "refused.html"
            return rendered(template, words_for(request), values, error.status)

    return answered


def _to_sign_in(request: Request) -> Response:
    address = f"{PATH}/sign-in"
    if request.headers.get("hx-request"):
        # A part of a page cannot hold the form: the whole page has to go there.
        answer = Response(status_code=HTTPStatus.NO_CONTENT, headers={"hx-redirect": address})
    else:
        answer = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    delete_cookie(answer)
    return answer


async def _to_console(_request: Request) -> Response:
    return RedirectResponse(PATH.removeprefix("/"))


async def _nowhere(request: Request) -> Response:
    if request.url.path == f"{PATH}/":
        return RedirectResponse(PATH)
    raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
