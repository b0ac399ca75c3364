"""The company's mobile applications: /profile/application."""

import secrets
from typing import Annotated

from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import DoneAnswer, Record, answer, done
from api.errors import not_found
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read, may_write
from api.plain_route import PlainRoute
from api.records.company import APPLICATIONS, ApplicationAnswer
from api.retrieval import After, Limit, listed
from api.routes.parameters import PREFIX, ApplicationId
from api.writing import assign, write, written
from catalog.fields.company import ApplicationInput
from catalog.models import Application

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["profile"])
Writer = Annotated[AuthorizedCaller, may_write("application")]
_KEY_BYTES = 24


@router.get("/profile/application", **operation("List applications", list[ApplicationAnswer]))
async def list_applications(
    caller: Annotated[AuthorizedCaller, may_read("application")],
    limit: Limit = None,
    after: After = 0,
) -> Response:
    """The company's applications."""
    return await listed(caller, APPLICATIONS, after=after, limit=limit)


@router.post(
    "/profile/application",
    **operation("Create application", ApplicationAnswer, body=ApplicationInput, status=201),
)
async def create_application(caller: Writer) -> Response:
    """Create an application. The service generates its `api_key`, which never changes."""
    values = await caller.values(ApplicationInput)

    async def work(session: AsyncSession) -> Record:
        key = secrets.token_urlsafe(_KEY_BYTES)
        record = Application(**values, company_id=caller.company_id, api_key=key)
        session.add(record)
        await session.flush()
        return await written(session, caller, APPLICATIONS, id=record.id)

    return answer(await write(caller.services, work), 201)


@router.put(
    "/profile/application/{id}",
    **operation("Edit application", ApplicationAnswer, body=ApplicationInput),
)
async def edit_application(caller: Writer, number: ApplicationId) -> Response:
    """Change an application. Optional fields that are not given stay as they are."""
    values = await caller.values(ApplicationInput)

    async def work(session: AsyncSession) -> Record:
        record = await _lock(session, caller, number)
        assign(record, values)
        await session.flush()
        return await written(session, caller, APPLICATIONS, id=number)

    return answer(await write(caller.services, work))


@router.delete("/profile/application/{id}", **operation("Delete application", DoneAnswer))
async def delete_application(caller: Writer, number: ApplicationId) -> Response:
    """Delete the application; its key stops working."""

    async def work(session: AsyncSession) -> None:
        await session.delete(await _lock(session, caller, number))

    await write(caller.services, work)
    return done()


async def _lock(session: AsyncSession, caller: AuthorizedCaller, number: int) -> Application:
    where = (Application.id == number, Application.company_id == caller.company_id)
    found = await session.scalar(select(Application).where(*where).with_for_update())
    if found is None:
        raise not_found("application")
    return found
