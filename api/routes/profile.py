"""GET /profile and GET /profile/application."""

from typing import Annotated

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import answer
from api.errors import no_session
from api.openapi.operations import operation
from api.permissions import Caller, may_read
from api.records import company
from api.records.page import Page, Record
from api.routes.parameters import PREFIX
from api.streaming import After, Limit, listed
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
