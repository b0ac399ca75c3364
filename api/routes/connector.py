"""The company's connector: /connector."""

from typing import Annotated, Any

import structlog
from fastapi import APIRouter
from redis.exceptions import RedisError
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import DoneAnswer, Record, answer, done
from api.errors import bad_fields, not_found, unavailable
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read, may_write
from api.plain_route import PlainRoute
from api.records import company
from api.records.calls import ConnectorCallsAnswer, ConnectorTrialAnswer
from api.records.company import ConnectorAnswer
from api.routes.parameters import PREFIX
from api.writing import write
from catalog.errors import DecryptionError
from catalog.fields.connector import ConnectorInput, connector_conflicts
from catalog.load.companies import encrypted
from catalog.models import Connector
from catalog.secrets import Cipher
from connectors.errors import EgressError, HostUnresolvedError, NothingToTryError

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["connector"])
_log = structlog.get_logger(__name__)
Writer = Annotated[AuthorizedCaller, may_write("connector")]
Reader = Annotated[AuthorizedCaller, may_read("connector")]
_UNDER_WAY = {
    429: (
        "A test is running already; `retry-after` says how many seconds to wait.",
        "the company's connector is being tested already",
    )
}


@router.get("/connector", **operation("Get connector", ConnectorAnswer))
async def get_connector(caller: Reader) -> Response:
    """The connector, its parameters in plain text; 404 until there is one.

    The signing secret is never shown, only whether there is one.
    """
    cipher = _cipher(caller)
    async with caller.services.database.autocommit() as session:
        stored = await _stored(session, caller)
    if stored is None:
        raise not_found("connector: it has not been set up")
    return answer(_shown(stored, cipher))


@router.put("/connector", **operation("Update connector", ConnectorAnswer, body=ConnectorInput))
async def update_connector(caller: Writer) -> Response:
    """Create or change the connector.

    The url may only lead to public addresses. A host name that does not resolve now is accepted,
    because each call resolves it again.
    """
    cipher = _cipher(caller)
    values = await _values(caller)

    async def work(session: AsyncSession) -> Record:
        stored = await _stored(session, caller, lock=True)
        tokens = encrypted(cipher, stored, values)
        if stored is None:
            stored = Connector(**tokens, company_id=caller.company_id)
            session.add(stored)
        for name, value in tokens.items():
            setattr(stored, name, value)
        await session.flush()
        return _shown(stored, cipher)

    return answer(await write(caller.services, work))


@router.delete("/connector", **operation("Delete connector", DoneAnswer))
async def delete_connector(caller: Writer) -> Response:
    """Delete the connector. Without one, campaigns of format connector send nothing."""

    async def work(session: AsyncSession) -> None:
        stored = await _stored(session, caller, lock=True)
        if stored is None:
            raise not_found("connector: it has not been set up")
        await session.delete(stored)

    await write(caller.services, work)
    return done()


@router.post(
    "/connector/test",
    **operation("Test connector", ConnectorTrialAnswer, also=_UNDER_WAY),
)
async def test_connector(caller: Writer) -> Response:
    """Call the connector once, about a sample detection of a test device.

    Returns the request and the reply, with masked secrets and shortened texts, and the notification
    that would follow. Nothing is published, the call is not retried, and the breaker does not count
    it. One test runs at a time.
    """
    services = caller.services
    cipher = _cipher(caller)
    with services.trial_slots.slot(caller.company_id):
        async with services.database.autocommit() as session:
            stored = await _stored(session, caller)
        if stored is None:
            raise not_found("connector: it has not been set up")
        _shown(stored, cipher)
        try:
            trial = await services.try_connector(caller.company_id)
        except NothingToTryError as error:
            raise unavailable(str(error)) from None
    _log.info("connector tested", company=caller.company_id, outcome=trial.outcome)
    return answer(ConnectorTrialAnswer.model_validate(trial).model_dump())


@router.get("/connector/calls", **operation("List connector calls", ConnectorCallsAnswer))
async def list_connector_calls(caller: Reader) -> Response:
    """The last 50 calls of the last day, the newest first, and the breaker."""
    try:
        history = await caller.services.past_calls(caller.company_id)
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("past calls cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which knows the calls, does not answer; try again") from None
    return answer(ConnectorCallsAnswer.model_validate(history).model_dump())


async def _values(caller: AuthorizedCaller) -> dict[str, Any]:
    values = await caller.values(ConnectorInput, connector_conflicts)
    try:
        await caller.services.check_url(values["url"])
    except HostUnresolvedError as error:
        _log.info("a connector's name does not resolve", error=str(error))
    except EgressError as error:
        raise bad_fields({"url": str(error)}) from None
    return values


async def _stored(
    session: AsyncSession, caller: AuthorizedCaller, *, lock: bool = False
) -> Connector | None:
    query = select(Connector).where(Connector.company_id == caller.company_id)
    return (await session.scalars(query.with_for_update() if lock else query)).one_or_none()


def _cipher(caller: AuthorizedCaller) -> Cipher:
    if caller.services.cipher is None:
        raise unavailable("connectors are off: the service has no key to encrypt them with")
    return caller.services.cipher


def _shown(stored: Connector, cipher: Cipher) -> Record:
    try:
        return company.connector(stored, cipher)
    except DecryptionError as error:
        _log.error("connector cannot be shown", company=stored.company_id, error=str(error))
        raise unavailable("the connector was stored with a key that the service lacks") from None
