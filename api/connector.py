"""The company's connector: /connector."""

from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter
from pydantic import AfterValidator, BeforeValidator, Field
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import (
    Answer,
    ApiError,
    Count,
    DoneAnswer,
    EpochTime,
    Id,
    NamedAnswer,
    Text,
    bad_fields,
    not_found,
    unavailable,
)
from api.bodies import accepts, refuse
from api.permissions import PREFIX, Caller, may_read, may_write
from api.tenancy import assign, of_company, writing
from catalog.errors import DecryptionError
from catalog.inputs import ConnectorInput, connector_conflicts
from catalog.limits import lock_company
from catalog.models import Connector
from catalog.secrets import Cipher, encrypted
from connectors.errors import EgressError, HostUnresolvedError, NothingToTryError
from connectors.model import BreakerStatus, CallFault, Content

router = APIRouter(prefix=f"{PREFIX}/connector", tags=["connector"])
_log = structlog.get_logger(__name__)
Writer = Annotated[Caller, may_write("connector")]
Reader = Annotated[Caller, may_read("connector")]


class ConnectorAnswer(NamedAnswer):
    url: str
    method: Literal["GET", "POST"]
    auth: Literal["header", "get"]
    parameters: str = Field(description="A JSON list, encoded as a string.")
    signed: bool = Field(description="Whether calls are signed: the secret itself is never shown.")


Seconds = Annotated[
    float | None,
    AfterValidator(lambda seconds: seconds and round(seconds, 3)),
    Field(description="null if the service was not called."),
]


class BreakerAnswer(Answer):
    state: BreakerStatus
    calls: Count = Field(description="The number of last calls that it considers; 0 while open.")
    failures: Count = Field(description="How many of these calls failed.")
    seconds: Seconds = Field(
        validation_alias="wait", description="The seconds until it permits a trial call."
    )


class _OutcomeAnswer(Answer):
    outcome: str = Field(
        description="The outcome, or the reason of the failure.",
        json_schema_extra={"enum": ["published", "declined", *CallFault]},
    )
    detail: str = Field(description="Details of a failure.")
    seconds: Seconds


class CallAnswer(_OutcomeAnswer):
    id: str = Field(description="The call's idempotency-key, and its notification's id.")
    create_on: EpochTime = Field(validation_alias="at")
    campaign_id: Id = Field(validation_alias="campaign")
    status: int | None = Field(description="The reply's status; null if there was no reply.")
    tries: Count


class ConnectorCallsAnswer(Answer):
    breaker: BreakerAnswer
    calls: list[CallAnswer]


class HeaderAnswer(Answer):
    key: str
    value: str


Headers = Annotated[
    list[HeaderAnswer],
    BeforeValidator(lambda pairs: [{"key": name, "value": value} for name, value in pairs]),
]


class TrialRequestAnswer(Answer):
    method: str
    url: str
    headers: Headers
    body: str


class TrialReplyAnswer(Answer):
    status: int
    headers: Headers
    body: str


class TrialNotificationAnswer(Answer):
    """The notification of a trial. An empty text stands for the campaign's own."""

    title: Text
    push: Text
    format: Literal["template", "url", "html"]
    content: str


class ConnectorTrialAnswer(_OutcomeAnswer):
    request: TrialRequestAnswer | None
    reply: TrialReplyAnswer | None
    notification: Annotated[
        TrialNotificationAnswer | None,
        BeforeValidator(lambda result: result if isinstance(result, Content) else None),
    ] = Field(validation_alias="result")


@router.get("")
async def get_connector(caller: Reader) -> ConnectorAnswer:
    """The connector, its parameters in plain text; 404 until there is one.

    The signing secret is never shown, only whether there is one.
    """
    cipher = _cipher(caller)
    async with caller.services.database.read() as session:
        return _shown(await _stored(session, caller), cipher)


@router.put(
    "",
    openapi_extra=accepts(
        ConnectorInput,
        {
            "name": "Loans",
            "url": "https://library.example/proximity",
            "method": "POST",
            "auth": "header",
            "parameters": '[{"key": "x-library-key", "value": "demo"}]',
        },
    ),
)
async def update_connector(caller: Writer) -> ConnectorAnswer:
    """Create or change the connector.

    The url may only lead to public addresses. A host name that does not resolve now is accepted,
    because each call resolves it again.
    """
    cipher = _cipher(caller)
    values = await caller.values(ConnectorInput)
    refuse(connector_conflicts(values))
    try:
        await caller.services.check_url(values["url"])
    except HostUnresolvedError as error:
        _log.info("a connector's name does not resolve", error=str(error))
    except EgressError as error:
        raise bad_fields({"url": str(error)}) from None
    async with writing(caller.services) as session:
        await lock_company(session, caller.company_id)
        stored = await session.scalar(of_company(Connector, caller.company_id))
        tokens = encrypted(cipher, stored, values)
        if stored is None:
            stored = Connector(company_id=caller.company_id)
            session.add(stored)
        assign(stored, tokens)
        await session.flush()
        return _shown(stored, cipher)


@router.delete("")
async def delete_connector(caller: Writer) -> DoneAnswer:
    """Delete the connector. Without one, campaigns of format connector send nothing."""
    async with writing(caller.services) as session:
        await lock_company(session, caller.company_id)
        await session.delete(await _stored(session, caller))
    return DoneAnswer()


@router.post("/test", response_model=ConnectorTrialAnswer)
async def test_connector(caller: Writer) -> Any:
    """Call the connector once, about a sample detection of a test device.

    Returns the request and the reply, with masked secrets and shortened texts, and the notification
    that would follow. Nothing is published, the call is not retried, and the breaker does not count
    it. One test runs at a time: 429.
    """
    services, company = caller.services, caller.company_id
    async with services.database.read() as session:
        _shown(await _stored(session, caller), _cipher(caller))
    if company in services.trials:
        message = "the connector is being tested already; try again"
        raise ApiError(429, message, headers={"retry-after": "1"})
    services.trials.add(company)
    try:
        trial = await services.try_connector(company)
    except NothingToTryError as error:
        raise unavailable(str(error)) from None
    finally:
        services.trials.discard(company)
    _log.info("connector tested", company=company, outcome=trial.outcome)
    return trial


@router.get("/calls", response_model=ConnectorCallsAnswer)
async def list_connector_calls(caller: Reader) -> Any:
    """The last 50 calls of the last day, the newest first, and the breaker."""
    return await caller.services.past_calls(caller.company_id)


async def _stored(session: AsyncSession, caller: Caller) -> Connector:
    stored = await session.scalar(of_company(Connector, caller.company_id))
    if stored is None:
        raise not_found("connector: it has not been set up")
    return stored


def _cipher(caller: Caller) -> Cipher:
    if caller.services.cipher is None:
        raise unavailable("connectors are off: the service has no key to encrypt them with")
    return caller.services.cipher


def _shown(stored: Connector, cipher: Cipher) -> ConnectorAnswer:
    try:
        parameters = cipher.decrypt(stored.parameters)
    except DecryptionError as error:
        _log.error("connector cannot be shown", company=stored.company_id, error=str(error))
        raise unavailable("the connector was stored with a key that the service lacks") from None
    shown: dict[str, Any] = {n: getattr(stored, n) for n in ("id", "name", "url", "method", "auth")}
    return ConnectorAnswer(**shown, parameters=parameters, signed=stored.secret is not None)
