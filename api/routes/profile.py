"""The profile, and its password."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from api.answers import DoneAnswer, answer, done
from api.errors import bad_fields, no_session
from api.openapi.operations import TOO_OFTEN, operation
from api.permissions import AuthorizedCaller, may_read, signed_in
from api.records import company
from api.records.company import ProfileAnswer
from api.requests import PasswordChange
from api.routes.parameters import PREFIX

router = APIRouter(prefix=PREFIX, tags=["profile"])


@router.get("/profile", **operation("Get profile", ProfileAnswer))
async def get_profile(caller: Annotated[AuthorizedCaller, may_read("profile")]) -> Response:
    """The account, its company and its permissions."""
    async with caller.services.database.autocommit() as session:
        profile = await company.profile(session, caller.account.account_id)
    if profile is None:
        raise no_session()
    return answer(profile)


@router.put(
    "/profile/password",
    **operation("Change password", DoneAnswer, body=PasswordChange, own=True, also=TOO_OFTEN),
)
async def change_password(caller: Annotated[AuthorizedCaller, signed_in()]) -> Response:
    """Set a new password. The account's other sessions end; the one of the request goes on."""
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
