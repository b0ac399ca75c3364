"""Writes a record and its outbox rows in one transaction, with retries."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import Record, done
from api.errors import ApiError, bad_fields, unavailable
from api.permissions import AuthorizedCaller
from api.records.page import RecordKind
from api.services import Services
from api.tenancy import InVenue, lock_record
from catalog.errors import LimitError
from catalog.models import Base
from catalog.reading import read_within
from catalog.sql_failures import is_lock_conflict

_log = structlog.get_logger(__name__)
_TRIES = 4
T = TypeVar("T")


async def write(services: Services, work: Callable[[AsyncSession], Awaitable[T]]) -> T:
    """Run `work` in a transaction, commit, and have the outbox drained.

    After a conflict with another writer `work` runs again from the beginning. Raises ApiError (409
    if the triple of a beacon is taken, 400 over a limit) and the errors of SQL.
    """
    for _ in range(_TRIES):
        try:
            async with services.database.write.begin() as session:
                result = await work(session)
        except LimitError as error:
            raise limit_answer(error) from None
        except DBAPIError as error:
            if _is_triple(error):
                raise ApiError(409, "the triple uuid, major, minor is taken") from None
            # An integrity error: meanwhile a tag of this name was added, or a parent was deleted.
            if not isinstance(error, IntegrityError) and not is_lock_conflict(error):
                raise
            _log.info("writing again", error=str(error.orig).partition("\n")[0])
        else:
            services.nudge()
            return result
    raise unavailable("the record is being changed by too many at once")


async def written(
    session: AsyncSession, caller: AuthorizedCaller, kind: RecordKind, **values: object
) -> Record:
    """The record as the transaction has written it. Raises ApiError 404."""
    company = caller.company_id
    return await read_within(session, lambda reader: kind.one(reader, company=company, **values))


async def delete_in_venue(
    caller: AuthorizedCaller, model: type[InVenue], venue_id: int, number: int
) -> Response:
    """Delete a record of a venue. Raises ApiError 404."""

    async def work(session: AsyncSession) -> None:
        await session.delete(await lock_record(session, model, caller.company_id, venue_id, number))

    await write(caller.services, work)
    return done()


def assign(record: Base, values: Mapping[str, Any]) -> None:
    """Set the record's attributes."""
    for name, value in values.items():
        setattr(record, name, value)


def limit_answer(limit: LimitError) -> ApiError:
    """The answer to a change that exceeds a limit: 400 with the limit."""
    if limit.field:
        return bad_fields({limit.field: str(limit)})
    return ApiError(400, str(limit))


def _is_triple(error: DBAPIError) -> bool:
    cause = getattr(error.orig, "__cause__", None)
    constraint = getattr(cause, "constraint_name", None)
    if constraint is not None:
        return bool(constraint == "uq_beacon_uuid_major_minor")
    return "beacon.uuid, beacon.major, beacon.minor" in str(error.orig)
