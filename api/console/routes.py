"""The console: its pages, its files, signing in and out."""

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from api.answers import ApiError
from api.console.context import (
    Context,
    call_interface,
    forget_session,
    keep_session,
    refused,
)
from api.console.forms import read_form
from api.console.pages import (
    activity,
    campaigns,
    devices,
    overview,
    records,
    settings,
    sheets,
    statistics,
)
from api.console.rendering import PATH, rendered
from api.console.texts import translations_for

router = APIRouter()
_AREAS = (overview, activity, records, sheets, campaigns, devices, settings, statistics)
ROUTERS = (router, *(area.router for area in _AREAS))


def add_console(app: FastAPI) -> None:
    """Add the pages to the application. Below their path, errors are pages too."""
    app.state.refused = refused
    files = StaticFiles(packages=[("api.console", "static"), ("api.console", "vendor/htmx")])
    app.mount(f"{PATH}/static", files)
    for each in ROUTERS:
        app.include_router(each, prefix=PATH, include_in_schema=False)


@router.get("/sign-in")
async def show_sign_in(request: Request) -> Response:
    """Show the form."""
    values = {"message": "", "email": "", "status": 0, "next": request.query_params.get("next", "")}
    return rendered("sign_in.html", translations_for(request), values)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Sign in with POST /v2/auth, put the session into the cookie, and go on to the page `next`."""
    form = await read_form(request)
    credentials = {name: form.get(name, "") for name in ("email", "password")}
    page = form.get("next", "")
    try:
        reply = await call_interface(request, "POST", "/auth", credentials)
    except ApiError as error:
        texts = translations_for(request)
        message = texts("sign_in_wrong") if error.status == 404 else error.message
        values = {"message": message, "email": credentials["email"], "status": 0, "next": page}
        return rendered("sign_in.html", texts, values, error.status, error.headers)
    answer = RedirectResponse(PATH + page, 303)
    keep_session(answer, request, reply.json()["session"]["token"])
    return answer


@router.post("/sign-out")
async def sign_out(context: Context) -> Response:
    """End the session in every process."""
    await context.call("DELETE", "/auth")
    answer = context.redirect("/sign-in")
    forget_session(answer)
    return answer
