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
    sign_in_page,
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
from api.console.rendering import PATH
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
    kept = [("next", request.query_params.get("next", ""))]
    return sign_in_page(translations_for(request), kept=kept)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Sign in with POST /v2/auth, and put the session into the cookie.

    The browser then goes on to the page `next`, or sends the form to the page `again`.
    """
    form = await read_form(request)
    credentials = {name: form.get(name, "") for name in ("email", "password")}
    try:
        reply = await call_interface(request, "POST", "/auth", credentials)
    except ApiError as error:
        texts = translations_for(request)
        return sign_in_page(
            texts,
            texts("sign_in_wrong") if error.status == 404 else error.message,
            kept=[each for each in form.multi_items() if each[0] not in credentials],
            status=error.status,
            email=credentials["email"],
            headers=error.headers,
        )
    page, status = (form["again"], 307) if "again" in form else (form.get("next", ""), 303)
    answer = RedirectResponse(PATH + page, status)
    keep_session(answer, request, reply.json()["session"]["token"])
    return answer


@router.post("/sign-out")
async def sign_out(context: Context) -> Response:
    """End the session in every process."""
    await context.call("DELETE", "/auth")
    answer = context.redirect("/sign-in")
    forget_session(answer)
    return answer
