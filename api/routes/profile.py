"""The profile, and its password."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from api.answers import answer, done
from api.body import raise_faults, read_values
from api.errors import bad_fields, no_session
from api.fields import NEW_PASSWORD
from api.openapi.operations import operation
from api.permissions import Caller, may_read, signed_in
from api.records import company
from api.routes.parameters import PREFIX
from catalog.fields.reading import Faults

router = APIRouter(prefix=PREFIX)


@router.get("/profile", **operation("Get profile", tag="profile", answers="Profile"))
async def get_profile(caller: Annotated[Caller, may_read("profile")]) -> Response:
    """The account, its company and its permissions."""
    async with caller.services.database.autocommit() as session:
        profile = await company.profile(session, caller.account.account_id)
    if profile is None:
        raise no_session()
    return answer(profile)


@router.put(
    "/profile/password",
    **operation(
        "Change password",
        tag="profile",
        answers="Done",
        body="PasswordChange",
        own=True,
        tries=True,
    ),
)
async def change_password(caller: Annotated[Caller, signed_in()]) -> Response:
    """Set a new password. The account's other sessions end; the one of the request goes on."""
    faults = Faults()
    values = read_values(NEW_PASSWORD, await caller.body(), faults)
    raise_faults(faults)
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
