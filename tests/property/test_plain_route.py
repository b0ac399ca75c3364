"""A plain route answers whatever is asked as FastAPI's own route does."""

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.plain_route import PlainFirst, PlainRoute
from api.retrieval import After, Limit
from api.routes.parameters import RecordId, VenueId

SITE = "https://shop.example"
TEXTS = st.one_of(
    st.integers(1, 99).map(str),
    st.integers(-3, 2**64).map(str),
    st.sampled_from(
        ["007", "+5", "1_000", "5.0", "1e3", " 7", "\u0661\u0662", "nan", "", "x", "{}"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
NAMES = st.sampled_from(["limit", "after", "id", "word", "Limit", ""])
QUERIES = st.lists(st.tuples(NAMES, TEXTS), max_size=3)


async def caller(request: Request) -> str:
    return request.headers["who"]


def application(route_class: type[APIRoute], *around: Middleware) -> FastAPI:
    router = APIRouter(route_class=route_class)

    @router.get("/region/{id}/beacon/{uid}")
    async def read(
        who: Annotated[str, Depends(caller)],
        request: Request,
        venue: VenueId,
        number: RecordId,
        limit: Limit = None,
        after: After = 0,
        word: str | None = None,
    ) -> Response:
        return JSONResponse([who, request.method, venue, number, limit, after, word])

    async def refused(_request: Request, error: Any) -> Response:
        return JSONResponse([fault["loc"] for fault in error.errors()], 400)

    app = PlainFirst(around=around) if route_class is PlainRoute else FastAPI()
    app.router.routes[:] = router.routes
    app.add_exception_handler(RequestValidationError, refused)
    return app


PLAIN, GENERAL = application(PlainRoute), application(APIRoute)


def ask(app: FastAPI, method: str, path: str, query: str, root: str) -> list[Any]:
    answered: list[Any] = []

    async def send(message: Any) -> None:
        answered.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": root,
        "query_string": query.encode(),
        "headers": [(b"who", b"somebody"), (b"origin", SITE.encode())],
    }
    asyncio.run(app(scope, receive, send))
    return answered


@settings(max_examples=150)
@given(TEXTS, TEXTS, QUERIES, st.sampled_from(["GET", "PUT"]), st.sampled_from(["", "/below"]))
@example("7", "8", [("limit", "5"), ("after", "6")], "GET", "")
@example("7", "8", [("limit", "5"), ("limit", "6")], "GET", "")
@example("7", "9223372036854775807", [], "GET", "/below")
@example("0", "8", [], "GET", "")
def test_the_answers_are_the_same(
    venue: str, number: str, query: list[tuple[str, str]], method: str, root: str
) -> None:
    path = f"{root}/region/{venue}/beacon/{number}"
    for written in (quote, str):  # str: as no client should write it
        text = "&".join(f"{name}={written(value)}" for name, value in query)
        assert ask(PLAIN, method, path, text, root) == ask(GENERAL, method, path, text, root)


def test_whole_numbers_take_the_short_way() -> None:
    (route,) = PLAIN.routes
    assert isinstance(route, PlainRoute)
    texts = {"id": "7", "uid": "8"}
    expected = {"venue": 7, "number": 8, "after": 3, "limit": 1, "word": None}
    assert route.arguments(texts, b"after=3&limit=1") == expected
    assert route.arguments(texts, b"word=x") is None


def test_plain_requests_pass_what_is_around_the_application() -> None:
    allowing = Middleware(CORSMiddleware, allow_origins=[SITE])
    app = application(PlainRoute, allowing)
    for path, status in (("/region/7/beacon/8", 200), ("/region/x/beacon/8", 400), ("/", 404)):
        start, _ = ask(app, "GET", path, "", "")
        assert start["status"] == status
        assert (b"access-control-allow-origin", SITE.encode()) in start["headers"]


def test_every_operation_is_plain() -> None:
    """One that is not would cost what FastAPI costs; then the class has to learn about it."""
    from api.app import _ROUTERS  # builds every route

    routes = [route for module in _ROUTERS for route in module.router.routes]
    assert len(routes) > 40
    assert [r.path for r in routes if not isinstance(r, PlainRoute) or not r.is_plain] == []
