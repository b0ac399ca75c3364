"""One transaction of a writer: its record and the outbox together, or neither."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import ApiError, bad_fields, unavailable
from api.services import Services
from catalog.errors import LimitError
from catalog.failures import is_lock_conflict

_log = structlog.get_logger(__name__)
_TRIES = 4
T = TypeVar("T")


async def write(services: Services, work: Callable[[AsyncSession], Awaitable[T]]) -> T:
    """Do `work` in a transaction, commit, and let the index know.

    `work` may be done again, from the beginning, when another writer was in its way. Raises
    ApiError, 409 when the triple of a beacon is taken, 400 past a limit, and what SQL raises.
    """
    for _ in range(_TRIES):
        try:
            async with services.database.write.begin() as session:
                result = await work(session)
        except IntegrityError as error:
            if _is_triple(error):
                raise ApiError(409, "the triple uuid, major, minor is taken") from None
            # A tag of this name came, or a record that this one belongs to went, meanwhile.
            _log.info("writing again", error=str(error.orig).partition("\n")[0])
        except LimitError as error:
            raise passed(error) from None
        except DBAPIError as error:
            if not is_lock_conflict(error):
                raise
            _log.info("writing again", error=str(error.orig).partition("\n")[0])
        else:
            services.nudge()
            return result
    raise unavailable("the record is being changed by too many at once")


def passed(limit: LimitError) -> ApiError:
    """The answer to what passes a limit: 400, which says it."""
    if limit.field:
        return bad_fields({limit.field: str(limit)})
    return ApiError(400, str(limit))


def _is_triple(error: IntegrityError) -> bool:
    cause = getattr(error.orig, "__cause__", None)
    constraint = getattr(cause, "constraint_name", None)
    if constraint is not None:
        return bool(constraint == "uq_beacon_uuid_major_minor")
    return "beacon.uuid, beacon.major, beacon.minor" in str(error.orig)
