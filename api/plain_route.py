"""Routes that read plain parameters by themselves, and leave the others to FastAPI.

FastAPI solves the parameters and dependencies of an operation anew in each request, and tries one
route after the other, which together cost more than reading a record. Nearly all requests have
nothing but whole numbers in the path and the query, and one dependency, the caller. They are solved
here, and their route is looked up by the shape of the path. Every other request, and every request
that is refused because of a parameter, takes FastAPI's way.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from api.routes.parameters import numbers_of

_MOST_DIGITS = 18  # each such number fits in 64 bits
_NUMBER = re.compile(r"/[0-9]+(?=/|\Z)")
_PARAMETER = re.compile(r"/\{\w+\}(?=/|\Z)")
_ANY = "/{}"  # in the shape of a path, where a number is


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
    """The class of every /v2 route."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._operation: Callable[..., Awaitable[Response]] = endpoint
        self._callers = self.dependant.dependencies
        self._solved_by_fastapi = self.app
        if _is_plain(self.dependant) and all(map(_takes_the_request, self._callers)):
            limits, query = numbers_of(self), self.dependant.query_params
            self._in_path = _numbers(self.dependant.path_params, limits)
            self._in_query = _numbers([each for each in query if each.alias in limits], limits)
            self._defaults = {each.name: each.default for each in query}
            self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        arguments = self._arguments(scope)
        if arguments is None:
            await self._solved_by_fastapi(scope, receive, send)
            return
        request = Request(scope, receive, send)
        for caller in self._callers:
            arguments[caller.name or ""] = await caller.call(request)  # type: ignore[misc]
        if self.dependant.request_param_name:
            arguments[self.dependant.request_param_name] = request
        response = await self._operation(**arguments)
        await response(scope, receive, send)

    def _arguments(self, scope: Scope) -> dict[str, Any] | None:
        """The parameters by argument, or None if FastAPI has to look at them."""
        arguments = dict(self._defaults)
        texts = scope["path_params"]
        for alias, taken in self._in_path.items():
            number = taken.of(texts[alias])
            if number is None:
                return None
            arguments[taken.argument] = number
        if scope["query_string"] and not self._add_query(scope["query_string"], arguments):
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


class PlainRouting:
    """Finds the plain route of a request; what it does not find goes the way of `router`.

    Made once `router` has all its routes, and then put in place of its `middleware_stack`.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._others = router.middleware_stack
        self._routes: dict[tuple[str, str], PlainRoute] = {}
        for route in router.routes:
            if isinstance(route, PlainRoute):
                shape = _PARAMETER.sub(_ANY, route.path)
                for method in route.methods or ():
                    self._routes.setdefault((method, shape), route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        route = None
        if scope["type"] == "http" and not scope.get("root_path"):
            path = scope["path"]
            route = self._routes.get((scope["method"], _NUMBER.sub(_ANY, path)))
        if route is None or _ANY in path:
            await self._others(scope, receive, send)
            return
        scope["router"], scope["route"] = self._router, route
        scope["endpoint"] = route.endpoint
        numbers = (number[1:] for number in _NUMBER.findall(path))
        scope["path_params"] = dict(zip(route.param_convertors, numbers, strict=True))
        await route.app(scope, receive, send)


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
