"""Routes that read plain parameters by themselves, and leave the others to FastAPI.

FastAPI solves the parameters and dependencies of an operation anew in each request, and tries one
route after the other, which together cost more than reading a record. Nearly all requests have
nothing but whole numbers in the path and the query, and one dependency, the caller. They are solved
here, and their route is looked up by the shape of the path. Every other request, and every request
that is refused because of a parameter, takes FastAPI's way.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.routes.parameters import numbers_of

_MOST_DIGITS = 18  # each such number fits in 64 bits
_NUMBER = re.compile(r"/[0-9]+(?=/|\Z)")
_PARAMETER = re.compile(r"/\{\w+\}(?=/|\Z)")
_ANY = "/{}"  # in the shape of a path, where a number is
_ARGUMENTS = "plain_arguments"  # in the scope


class _WholeNumber(NamedTuple):
    """A whole number in the path or the query, and the argument that takes it."""

    argument: str
    lowest: int
    highest: int

    def of(self, text: str) -> int | None:
        """The number, unless FastAPI has to look at the text."""
        if len(text) > _MOST_DIGITS or not (text.isascii() and text.isdigit()):
            return None
        number = int(text)
        return number if self.lowest <= number <= self.highest else None


class PlainRoute(APIRoute):
    """The class of every /v2 route. `is_plain`: what it takes can be solved here."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._operation: Callable[..., Awaitable[Response]] = endpoint
        self._callers = self.dependant.dependencies
        self.is_plain = _is_plain(self.dependant) and all(map(_takes_the_request, self._callers))
        if self.is_plain:
            limits, query = numbers_of(self), self.dependant.query_params
            self._in_path = _numbers(self.dependant.path_params, limits)
            self._in_query = _numbers([each for each in query if each.alias in limits], limits)
            self._defaults = {each.name: each.default for each in query}

    async def answered(self, request: Request, arguments: dict[str, Any]) -> Response:
        """The answer of the operation. Raises what its caller and the operation raise."""
        for caller in self._callers:
            arguments[caller.name or ""] = await caller.call(request)  # type: ignore[misc]
        if self.dependant.request_param_name:
            arguments[self.dependant.request_param_name] = request
        return await self._operation(**arguments)

    def arguments(self, texts: Mapping[str, str], query: bytes) -> dict[str, Any] | None:
        """The parameters by argument, or None if FastAPI has to look at them.

        `texts` are those of the path.
        """
        arguments = dict(self._defaults)
        for alias, taken in self._in_path.items():
            number = taken.of(texts[alias])
            if number is None:
                return None
            arguments[taken.argument] = number
        if query and not self._add_query(query, arguments):
            return None
        return arguments

    def _add_query(self, query: bytes, arguments: dict[str, Any]) -> bool:
        """Whether the query has nothing but whole numbers, each of them once."""
        given: set[str] = set()
        for part in query.decode("latin-1").split("&"):
            alias, _, text = part.partition("=")
            taken = self._in_query.get(alias)
            number = None if taken is None or alias in given else taken.of(text)
            if taken is None or number is None:
                return False
            given.add(alias)
            arguments[taken.argument] = number
        return True


class PlainFirst(FastAPI):
    """FastAPI, except that plain requests pass only what is around it, then their operation.

    `around` is the middleware of every request, the outermost first. Layers of FastAPI's own that a
    plain request does not pass: telemetry, limits of bodies, files that are closed at the end; the
    interface uses none of them. Handlers of errors are the application's.
    """

    def __init__(self, *, around: Sequence[Middleware], **options: Any) -> None:
        super().__init__(middleware=around, **options)
        self._around = around
        self._plain: _PlainRequests | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if self._plain is None:  # by the first request there are all routes and handlers
            self._plain = _PlainRequests(self, self._around)
        if self._plain.takes(scope):
            await self._plain.way(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _PlainRequests:
    """Finds the plain route of a request. `way` answers the requests that it takes."""

    def __init__(self, app: FastAPI, around: Sequence[Middleware]) -> None:
        self._app = app
        self._routes: dict[tuple[str, str], PlainRoute] = {}
        for route in app.routes:
            if isinstance(route, PlainRoute):
                shape = _PARAMETER.sub(_ANY, route.path)
                for method in route.methods or ():
                    self._routes.setdefault((method, shape), route)
        self.way: ASGIApp = ExceptionMiddleware(_answer, handlers=app.exception_handlers)
        for layer, arguments, options in reversed(around):
            self.way = layer(self.way, *arguments, **options)

    def takes(self, scope: Scope) -> bool:
        """Whether the request is plain. Then its route and its arguments are in the scope."""
        if scope["type"] != "http" or scope.get("root_path"):
            return False
        path = scope["path"]
        route = self._routes.get((scope["method"], _NUMBER.sub(_ANY, path)))
        if route is None or not route.is_plain or _ANY in path:
            return False
        numbers = (number[1:] for number in _NUMBER.findall(path))
        texts = dict(zip(route.param_convertors, numbers, strict=True))
        arguments = route.arguments(texts, scope["query_string"])
        if arguments is None:
            return False
        scope["app"], scope["route"], scope["endpoint"] = self._app, route, route.endpoint
        scope["path_params"], scope[_ARGUMENTS] = texts, arguments
        return True


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    route: PlainRoute = scope["route"]
    response = await route.answered(Request(scope, receive, send), scope[_ARGUMENTS])
    await response(scope, receive, send)


def _is_plain(dependant: Dependant) -> bool:
    """Whether all that the operation takes is known here, or has a default."""
    others = (dependant.header_params, dependant.cookie_params, dependant.body_params)
    needed = (each.field_info.is_required() for each in dependant.query_params)
    return not any(others) and not any(needed)


def _takes_the_request(dependency: Dependant) -> bool:
    takes = dependency.path_params or dependency.query_params or dependency.dependencies
    return _is_plain(dependency) and not takes and iscoroutinefunction(dependency.call)


def _numbers(
    fields: Iterable[Any], limits: Mapping[str, tuple[int, int]]
) -> dict[str, _WholeNumber]:
    return {each.alias: _WholeNumber(each.name, *limits[each.alias]) for each in fields}
