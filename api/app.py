"""Builds the application: its routes, its OpenAPI document, its errors, and what is around them."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

import structlog
from asyncpg import InterfaceError, PostgresError
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import RedirectResponse
from fastapi_offline import FastAPIOffline
from pydantic.json_schema import models_json_schema
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from api import activity, campaigns, connector, devices, profile, statistics, venues
from api.answers import ApiError, ErrorAnswer, bad_fields, unavailable
from api.bodies import BODIES
from api.middleware import ApiMetrics, RequestMiddleware
from api.permissions import KEY_HEADER, TOKEN_HEADER, Services
from catalog.database import database_may_recover

_log = structlog.get_logger(__name__)
_RESOURCES = (profile, devices, venues, campaigns, connector, statistics, activity)
_ABOUT = """Sign in with `POST /v2/auth`, then send the account's e-mail as `x-service-key` and the
token as `x-service-token`. Flags are accepted as true/false, 1/0, also as strings; timestamps as
`2026-11-20T10:00:00+0100` or in RFC 3339. A PUT does not change optional fields that it omits.
Fields that are not listed are ignored.

A text is never null: it is empty if it was never set. A number or a time that was never set is
null. Only `token_push` and `id_connector` of a device are omitted if it has none. In requests null
and an empty text both clear an optional text.

Errors: 400 `fields` names each bad field with what it accepts; 401 no session; 403 the account's
permission is too low; 404 no such record in the account's company; 413, 415 the body is too large,
or is not JSON; 409 the triple of a beacon is taken; 429, 503 try again after `retry-after` seconds.
"""


def build_app(
    *,
    services: Services,
    metrics: ApiMetrics,
    version: str,
    cors_origins: Sequence[str] = (),
    with_console: bool = False,
) -> FastAPI:
    """The interface under /v2, /docs, /openapi.json, and the console.

    `cors_origins` are the sites whose pages may call the interface from a browser.
    """
    app = FastAPIOffline(
        title="Proximity management interface",
        description=_ABOUT,
        version=version,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": "/"}],  # the default, which some generators need explicitly
        # Generated clients use it as a function's name.
        generate_unique_id_function=lambda route: route.name,
        responses={"default": {"model": ErrorAnswer, "description": "An error."}},
        exception_handlers=dict.fromkeys(_ERRORS, _answer),
    )
    app.state.services = services
    for resource in _RESOURCES:
        app.include_router(resource.router)
    if with_console:
        # Imported here, because only an application with the console needs the templates' library.
        from api.console.routes import add_console

        add_console(app)
    app.add_route("/", lambda _: RedirectResponse("console" if with_console else "docs"))
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    app.add_middleware(RequestMiddleware, metrics=metrics)
    if cors_origins:  # around everything, so that a page can read each error
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["content-type", KEY_HEADER, TOKEN_HEADER],
            expose_headers=["x-request-id", "x-total", "retry-after"],
        )
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with the bodies that the operations read by themselves."""
    if app.openapi_schema is None:
        made = FastAPI.openapi(app)
        models: Any = [(model, "validation") for model in BODIES.values()]
        _, bodies = models_json_schema(models, ref_template="#/components/schemas/{model}")
        made["components"]["schemas"] |= bodies["$defs"]
        headers = {"key": KEY_HEADER, "token": TOKEN_HEADER}
        made["components"]["securitySchemes"] = {
            scheme: {"type": "apiKey", "in": "header", "name": name}
            for scheme, name in headers.items()
        }
        made["security"] = [{scheme: [] for scheme in headers}]
    return app.openapi_schema or made


def _refusal(error: Exception) -> ApiError:
    """What is answered to an error of an operation; the log gets the first line of one of SQL."""
    match error:
        case ApiError():
            return error
        case HTTPException():  # the framework's, for an unknown path or method
            message = HTTPStatus(error.status_code).phrase.lower()
            return ApiError(error.status_code, message, headers=error.headers)
        case RequestValidationError():
            return bad_fields({str(each["loc"][-1]): _fault(each) for each in error.errors()})
        case ClientDisconnect():
            return ApiError(400, "the body ended too soon")
    text = str(getattr(error, "orig", None) or error).partition("\n")[0]
    passes = isinstance(error, RedisError) or database_may_recover(error)
    _log.error("SQL or Redis failed", error=f"{type(error).__name__}: {text}", passes=passes)
    if passes:  # a deadline that has passed does not say whose it was
        return unavailable("SQL or Redis does not answer; try again")
    return ApiError(500, "internal error")


def _fault(fault: Any) -> str:
    return str(fault.get("ctx", {}).get("error", fault["msg"]))  # our own words without a prefix


async def _answer(request: Request, error: Exception) -> Response:
    refusal, state = _refusal(error), request.app.state
    if request.url.path.startswith("/console") and hasattr(state, "refused"):
        return cast(Response, state.refused(request, refusal))
    return refusal.answer(request.scope)


_ERRORS = (
    *(ApiError, HTTPException, RequestValidationError, ClientDisconnect),
    *(RedisError, SQLAlchemyError, PostgresError, InterfaceError, OSError),
)
