"""Builds the application: routes, errors, and the middleware around them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from asyncpg import InterfaceError, PostgresError
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from api.answers import answer, error_answer
from api.errors import ApiError, as_of_signing_in, bad_fields, unavailable
from api.metrics import ApiMetrics
from api.middleware import RequestMiddleware
from api.openapi import page
from api.openapi.document import document
from api.permissions import KEY_HEADER, TOKEN_HEADER
from api.plain_route import PlainFirst
from api.routes import (
    account,
    application,
    audit,
    beacon,
    campaign,
    connector,
    device,
    explain,
    geofence,
    realtime,
    recent,
    statistic_figures,
    statistic_totals,
    statistics,
    venue,
)
from api.routes.parameters import PREFIX, numbers_of
from api.services import Services
from catalog.sql_failures import database_may_recover

_log = structlog.get_logger(__name__)
_ROUTERS = (
    account,
    application,
    device,
    venue,
    beacon,
    geofence,
    campaign,
    explain,
    connector,
    statistics,
    statistic_totals,
    recent,
    statistic_figures,
    realtime,
    audit,
)

Check = Callable[[], Awaitable[bool]]


def build_app(
    *,
    services: Services,
    metrics: ApiMetrics,
    version: str,
    ready: Callable[[], Awaitable[Mapping[str, bool]]],
    cors_origins: Sequence[str] = (),
    with_console: bool = False,
) -> FastAPI:
    """The interface under /v2, /docs, /openapi.json, /healthz and /readyz, and the console.

    `ready` has the checks of /readyz by name; the answer is 200 if all of them pass. `cors_origins`
    are the sites whose pages may call the interface from a browser.
    """
    limits = services.limits
    around = [
        Middleware(
            RequestMiddleware,
            metrics=metrics,
            seconds=limits.answer_seconds,
            whole_seconds=limits.whole_answer_seconds,
        ),
        *([_cors(cors_origins)] if cors_origins else ()),
    ]
    app = PlainFirst(
        around=around,
        title="Proximity management interface",
        version=version,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    for module in _ROUTERS:
        # The routers' own route objects: FastAPI would create each included route once more, which
        # takes a tenth of a second at the start, and would search it twice in each request.
        app.router.routes.extend(module.router.routes)
    if with_console:
        # Imported here, because only an application with the console needs the templates' library.
        from api.console.routes import console_routes

        app.router.routes.extend(console_routes())
    app.include_router(page.router)
    app.include_router(_plain_routes(app, version, ready))
    _handle_errors(app)
    return app


def _cors(origins: Sequence[str]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["content-type", KEY_HEADER, TOKEN_HEADER],
        expose_headers=["x-request-id", "retry-after"],
    )


def _plain_routes(
    app: FastAPI, version: str, ready: Callable[[], Awaitable[Mapping[str, bool]]]
) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    made: dict[str, Any] = {}

    @router.get("/openapi.json")
    async def openapi() -> Response:
        if not made:
            made.update(document(app, version))
        return answer(made)

    @router.get("/healthz")
    async def healthz() -> Response:
        return answer({"status": "ok"})

    @router.get("/readyz")
    async def readyz() -> Response:
        checks = await ready()
        good = all(checks.values())
        content = {"status": "ready" if good else "not ready", "checks": checks}
        return answer(content, 200 if good else 503)

    return router


def _handle_errors(app: FastAPI) -> None:
    handlers: dict[type[Exception], Any] = {
        ApiError: _api_error,
        HTTPException: _http_error,
        RequestValidationError: _bad_parameters,
        SQLAlchemyError: _database_error,
        PostgresError: _database_error,
        InterfaceError: _database_error,
        OSError: _database_error,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _api_error(request: Request, error: ApiError) -> Response:
    if (request.method, request.url.path) == ("POST", f"{PREFIX}/auth"):
        error.body = as_of_signing_in(error.body)
    return error_answer(error)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """The framework's error for an unknown path or method, in the interface's shape."""
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"allow": ", ".join(_methods(request))}
    message = HTTPStatus(error.status_code).phrase.lower()
    return await _api_error(request, ApiError(error.status_code, message, headers=headers))


async def _bad_parameters(request: Request, error: RequestValidationError) -> Response:
    limits = numbers_of(request.scope["route"])
    # pydantic's own messages name its types, so they are not shown.
    names = [str(fault["loc"][1]) for fault in error.errors()]
    fields = {
        name: f"accepted: a whole number from {lowest} to {highest}"
        for name, (lowest, highest) in ((name, limits[name]) for name in names)
    }
    return await _api_error(request, bad_fields(fields))


async def _database_error(request: Request, error: Exception) -> Response:
    """The answer to an error of SQL. Only the first line of its text goes to the log."""
    text = str(getattr(error, "orig", None) or error).partition("\n")[0]
    passes = database_may_recover(error)
    _log.error("the database failed", error=f"{type(error).__name__}: {text}", passes=passes)
    if not passes:
        return await _api_error(request, ApiError(500, "internal error"))
    return await _api_error(request, unavailable("the database does not answer; try again"))


def _methods(request: Request) -> list[str]:
    """Every method of the path."""
    scope = dict(request.scope)
    found: set[str] = set()
    for method in ("DELETE", "GET", "POST", "PUT"):
        probe = scope | {"method": method, "path": request.scope["path"]}
        if any(route.matches(probe)[0] is Match.FULL for route in request.app.routes):
            found.add(method)
    return sorted(found)
