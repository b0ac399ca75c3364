"""The profile, its password, and the company's applications."""

from typing import Annotated

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import answer, done
from api.body import raise_faults, read_values
from api.errors import bad_fields, no_session
from api.fields import NEW_PASSWORD
from api.openapi.operations import operation
from api.permissions import Caller, may_read, signed_in
from api.records import company
from api.records.page import Page, Record
from api.routes.parameters import PREFIX
from api.streaming import After, Limit, listed
from catalog.fields.reading import Faults
from catalog.models import Application

router = APIRouter(prefix=PREFIX)


@router.get("/profile", **operation("Get profile", tag="profile", answers="Profile"))
async def get_profile(caller: Annotated[Caller, may_read("profile")]) -> Response:
    """The account, its company and its permissions."""
    async with caller.services.database.glance() as session:
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


@router.get(
    "/profile/application",
    **operation("List applications", tag="profile", answers="Application", many=True),
)
async def list_applications(
    caller: Annotated[Caller, may_read("application")], limit: Limit = None, after: After = 0
) -> Response:
    """The company's applications."""
    where = (Application.company_id == caller.company_id,)

    async def read(session: AsyncSession, page: Page) -> list[Record]:
        return await company.applications(session, where, page)

    return await listed(caller.services.database, read, after=after, limit=limit)
