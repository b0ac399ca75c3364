"""POST /auth and DELETE /auth."""

from typing import Annotated

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.answers import answer, done, timestamp
from api.body import raise_faults, read_object, read_values
from api.errors import ApiError
from api.fields import CREDENTIALS
from api.openapi.operations import operation
from api.permissions import Caller, address_of, services_of, signed_in
from api.routes.parameters import PREFIX
from catalog.fields.reading import Faults

router = APIRouter(prefix=PREFIX)
# Whoever sends it is not known yet.
_LONGEST = 16 * 1024


@router.post(
    "/auth",
    **operation("Authenticate", tag="session", answers="SessionEnvelope", body="Credentials"),
)
async def authenticate(request: Request) -> Response:
    """A session for an e-mail and a password.

    An unknown address and a wrong password are answered alike, and take alike.
    """
    services = services_of(request)
    limits = services.limits
    longest = min(_LONGEST, limits.body_bytes)
    body = await read_object(request, longest=longest, seconds=limits.body_seconds)
    faults = Faults()
    values = read_values(CREDENTIALS, body, faults)
    raise_faults(faults)
    address = address_of(request)
    granted = await services.sign_in.sign_in(values["email"], values["password"], address)
    if granted is None:
        raise ApiError(404, "no user matches")
    session = {
        "token": granted.token,
        "email": granted.email,
        "valid": timestamp(granted.valid),
    }
    return answer({"status": "success", "session": session, "code": 200})


@router.delete("/auth", **operation("Sign out", tag="profile", answers="Done", own=True))
async def sign_out(caller: Annotated[Caller, signed_in()]) -> Response:
    """End the session of the request. Every other process knows within a second."""
    await caller.services.sign_in.sign_out(caller.token)
    caller.services.sessions.forget(caller.token)
    return done()
