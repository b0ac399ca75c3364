"""POST /auth and DELETE /auth."""

from typing import Annotated, Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.answers import Answer, DoneAnswer, Timestamp, answer, done
from api.body import raise_faults, read_object
from api.errors import ApiError
from api.openapi.operations import TOO_OFTEN, operation
from api.permissions import AuthorizedCaller, address_of, services_of, signed_in
from api.requests import Credentials
from api.routes.parameters import PREFIX
from catalog.fields.base import Faults, read_fields

router = APIRouter(prefix=PREFIX)
# Whoever sends it is not known yet.
_LONGEST = 16 * 1024


class SessionAnswer(Answer):
    token: str
    email: str
    valid: Timestamp


class SessionEnvelopeAnswer(Answer):
    status: Literal["success"]
    session: SessionAnswer
    code: int


@router.post(
    "/auth",
    tags=["session"],
    **operation(
        "Authenticate",
        SessionEnvelopeAnswer,
        body=Credentials,
        also=TOO_OFTEN | {404: ("No user matches.", "no user matches")},
        signing_in=True,
    ),
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
    values = read_fields(Credentials, body, faults=faults)
    raise_faults(faults)
    address = address_of(request)
    granted = await services.sign_in.sign_in(values["email"], values["password"], address)
    if granted is None:
        raise ApiError(404, "no user matches")
    session = SessionAnswer.model_validate(granted).model_dump()
    return answer({"status": "success", "session": session, "code": 200})


@router.delete("/auth", tags=["profile"], **operation("Sign out", DoneAnswer, own=True))
async def sign_out(caller: Annotated[AuthorizedCaller, signed_in()]) -> Response:
    """End the session of the request. Every other process knows within a second."""
    await caller.services.sign_in.sign_out(caller.token)
    caller.services.sessions.forget(caller.token)
    return done()
