"""The company's mobile applications: /profile/application."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import answer, done
from api.body import raise_faults, read_values
from api.errors import not_found
from api.fields import APPLICATION
from api.openapi.operations import operation
from api.permissions import Caller, may_read, may_write
from api.records import company
from api.records.page import ONE, Page, Record
from api.routes.parameters import PREFIX, ApplicationId
from api.streaming import After, Limit, listed
from api.writing import write
from catalog.fields.reading import Faults
from catalog.models import Application

router = APIRouter(prefix=PREFIX)
Writer = Annotated[Caller, may_write("application")]
_KEY_BYTES = 24


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


@router.post(
    "/profile/application",
    **operation(
        "Create application",
        tag="profile",
        answers="Application",
        body="ApplicationInput",
        status=201,
    ),
)
async def create_application(caller: Writer) -> Response:
    """A new application. The service makes its `api_key`, which stays as it is."""
    values = await _values(caller)

    async def work(session: AsyncSession) -> Record:
        key = secrets.token_urlsafe(_KEY_BYTES)
        record = Application(**values, company_id=caller.company_id, api_key=key)
        session.add(record)
        await session.flush()
        return await _one(session, record.id)

    return answer(await write(caller.services, work), 201)


@router.put(
    "/profile/application/{id}",
    **operation("Edit application", tag="profile", answers="Application", body="ApplicationInput"),
)
async def edit_application(caller: Writer, number: ApplicationId) -> Response:
    """The application, changed. Optional fields that are not given stay as they are."""
    values = await _values(caller)

    async def work(session: AsyncSession) -> Record:
        record = await _own(session, caller, number)
        for name, value in values.items():
            setattr(record, name, value)
        await session.flush()
        return await _one(session, number)

    return answer(await write(caller.services, work))


@router.delete(
    "/profile/application/{id}",
    **operation("Delete application", tag="profile", answers="Done"),
)
async def delete_application(caller: Writer, number: ApplicationId) -> Response:
    """Delete the application; its key stops working."""

    async def work(session: AsyncSession) -> None:
        await session.delete(await _own(session, caller, number))

    await write(caller.services, work)
    return done()


async def _own(session: AsyncSession, caller: Caller, number: int) -> Application:
    own = (Application.id == number, Application.company_id == caller.company_id)
    found = await session.scalar(select(Application).where(*own).with_for_update())
    if found is None:
        raise not_found("application")
    return found


async def _values(caller: Caller) -> dict[str, Any]:
    faults = Faults()
    values = read_values(APPLICATION, await caller.body(), faults)
    raise_faults(faults)
    return values


async def _one(session: AsyncSession, number: int) -> Record:
    return (await company.applications(session, (Application.id == number,), ONE))[0]
