"""Signing in and out, and the language of the pages."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.context import PageContext
from api.console.forms import read_form
from api.console.interface import InterfaceClient
from api.console.rendering import rendered
from api.console.session import (
    PATH,
    SessionCookie,
    delete_cookie,
    refuse_other_sites,
    set_cookie,
)
from api.console.texts import COOKIE, LANGUAGES, translations_for
from api.permissions import services_of

_YEAR = 365 * 24 * 3600


async def show(request: Request) -> Response:
    """Show the form."""
    values = {"message": "", "email": ""}
    return rendered("sign_in.html", translations_for(request), values)


async def sign_in(request: Request) -> Response:
    """Sign in with POST /v2/auth, and put the session into the cookie."""
    refuse_other_sites(request)
    form = await read_form(request, services_of(request).max_body)
    email = form.text("email")
    credentials = {"email": email, "password": form.text("password")}
    reply = await InterfaceClient(request).call("POST", "/auth", credentials)
    if not reply.is_success:
        texts = translations_for(request)
        is_wrong = reply.status == HTTPStatus.NOT_FOUND
        message = texts("sign_in_wrong") if is_wrong else reply.message
        values = {"message": message, "email": email}
        return rendered("sign_in.html", texts, values, reply.status)
    granted = reply.body["session"]
    answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    session = SessionCookie(granted["email"], granted["token"])
    set_cookie(answer, request, session, granted["valid"])
    return answer


async def choose_language(request: Request) -> Response:
    """Store the chosen language in a cookie."""
    refuse_other_sites(request)
    form = await read_form(request, services_of(request).max_body)
    answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    chosen = form.text("language")
    if chosen in LANGUAGES:
        secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, chosen, _YEAR, path=PATH, secure=secure, httponly=True, samesite="strict"
        )
    return answer


async def sign_out(context: PageContext) -> Response:
    """End the session in every process."""
    await context.interface.call("DELETE", "/auth")
    answer = context.redirect("/sign-in")
    delete_cookie(answer)
    return answer


PAGES = (("POST", "/sign-out", sign_out),)
