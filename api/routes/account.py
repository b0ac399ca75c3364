"""Signing in and out, the profile, and its password."""

from typing import Annotated, Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.answers import Answer, DoneAnswer, Timestamp, answer, done
from api.body import raise_faults, read_object
from api.errors import ApiError, bad_fields, no_session
from api.openapi.operations import TOO_OFTEN, operation
from api.permissions import AuthorizedCaller, address_of, may_read, services_of, signed_in
from api.plain_route import PlainRoute
from api.records import company
from api.records.company import ProfileAnswer
from api.requests import Credentials, PasswordChange
from api.routes.parameters import PREFIX
from catalog.fields.base import Faults, read_fields
from catalog.reading import read

router = APIRouter(route_class=PlainRoute, prefix=PREFIX)
# In bytes. Small, because the sender is not known yet.
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
    """Create a session for an e-mail and a password.

    An unknown address and a wrong password get the same answer in the same time.
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


@router.delete("/auth", tags=["session"], **operation("Sign out", DoneAnswer, own=True))
async def sign_out(caller: Annotated[AuthorizedCaller, signed_in()]) -> Response:
    """End the session of the request. Every other process ends it within a second."""
    await caller.services.sign_in.sign_out(caller.token)
    caller.services.sessions.forget(caller.token)
    return done()


@router.get("/profile", tags=["profile"], **operation("Get profile", ProfileAnswer))
async def get_profile(caller: Annotated[AuthorizedCaller, may_read("profile")]) -> Response:
    """The account, its company and its permissions."""
    account_id = caller.account.account_id
    profile = await read(
        caller.services.database, lambda reader: company.profile(reader, account_id)
    )
    if profile is None:
        raise no_session()
    return answer(profile)


@router.put(
    "/profile/password",
    tags=["profile"],
    **operation("Change password", DoneAnswer, body=PasswordChange, own=True, also=TOO_OFTEN),
)
async def change_password(caller: Annotated[AuthorizedCaller, signed_in()]) -> Response:
    """Set a new password. The account's other sessions end."""
    values = await caller.values(PasswordChange)
    changed = await caller.services.sign_in.change(
        caller.account,
        caller.address,
        caller.token,
        old=values["old_password"],
        new=values["new_password"],
    )
    if not changed:
        raise bad_fields({"old_password": "this is not the account's password"})
    return done()
