"""Signing in and out, and the language of the pages."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.context import PageContext
from api.console.forms import read_form
from api.console.interface import SessionKey, call_interface, message_of
from api.console.rendering import rendered
from api.console.session import (
    LANGUAGE,
    PATH,
    SESSION,
    forget_cookie,
    keep_cookie,
    keep_session,
    refuse_other_sites,
)
from api.console.texts import LANGUAGES, translations_for

_YEAR = 365 * 24 * 3600


async def show(request: Request) -> Response:
    """Show the form."""
    values = {"message": "", "email": "", "status": 0}
    return rendered("sign_in.html", translations_for(request), values)


async def sign_in(request: Request) -> Response:
    """Sign in with POST /v2/auth, and put the session into the cookie."""
    refuse_other_sites(request)
    form = await read_form(request)
    credentials = {name: form.get(name, "") for name in ("email", "password")}
    reply = await call_interface(request, None, "POST", "/auth", credentials, query={})
    if not reply.is_success:
        texts = translations_for(request)
        is_wrong = reply.status_code == HTTPStatus.NOT_FOUND
        message = texts("sign_in_wrong") if is_wrong else message_of(reply)
        values = {"message": message, "email": credentials["email"], "status": 0}
        return rendered("sign_in.html", texts, values, reply.status_code)
    granted = reply.json()["session"]
    answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    session = SessionKey(granted["email"], granted["token"])
    keep_session(answer, request, session, granted["valid"])
    return answer


async def choose_language(request: Request) -> Response:
    """Store the chosen language in a cookie."""
    refuse_other_sites(request)
    form = await read_form(request)
    answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    chosen = form.get("language", "")
    if chosen in LANGUAGES:
        keep_cookie(answer, request, LANGUAGE, chosen, _YEAR)
    return answer


async def sign_out(context: PageContext) -> Response:
    """End the session in every process."""
    await context.call("DELETE", "/auth")
    answer = context.redirect("/sign-in")
    forget_cookie(answer, SESSION)
    return answer


PAGES = (("POST", "/sign-out", sign_out),)
