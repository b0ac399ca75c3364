"""Makes one call about a sample detection, so that people see how a company's service answers.

The result is not published, a failure is not retried, and breakers do not count the call.
"""

import time
import uuid
from collections.abc import Awaitable, Callable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.company_lookup import find_company
from catalog.database import Database
from catalog.models import Beacon, Campaign, Connector, Venue
from connectors.call import Reply, ServiceCaller, call_service
from connectors.errors import CallError, EndpointError, NothingToTryError
from connectors.model import Call, CallBeacon, CallDevice, CallFault, Declined, NamedReference
from connectors.reports import Trial
from connectors.request import Request
from engine.connector.call_report import secrets_of, show_content, show_reply, show_request
from engine.connector.intake import EndpointDecryptor
from engine.kafka.messages import ConnectorEndpoint
from engine.kafka.timestamps import format_instant

SAMPLE_UDID = "sample-device"
_FRESH_SECONDS = 300.0


def company_trials(
    database: Database, decryptor: EndpointDecryptor, caller: ServiceCaller, *, agent: str
) -> Callable[[int], Awaitable[Trial]]:
    """A function that tries the connector of a company by its id.

    It raises NothingToTryError and SQLAlchemy's errors.
    """

    async def try_connector(company_id: int) -> Trial:
        call = await sample_call(database, decryptor, company_id, SAMPLE_UDID)
        try:
            return await make_trial(caller, call, agent=agent)
        finally:
            await caller.close()  # idle connections: trials are rare

    return try_connector


async def make_trial(caller: ServiceCaller, call: Call, *, agent: str) -> Trial:
    """Make the call once; every answer of the service becomes a Trial."""
    try:
        trial = Trial("", "", show_request(call, agent=agent, now=time.time()))
    except ValueError:
        detail = "the connector's url or parameters make no valid request"
        return Trial(CallFault.REQUEST.value, detail)
    begin = time.perf_counter()
    secrets: list[str] = []

    def on_reply(request: Request, reply: Reply) -> None:
        nonlocal trial
        secrets.extend(secrets_of(call, request))
        seconds = time.perf_counter() - begin
        trial = trial._replace(reply=show_reply(reply, secrets), seconds=seconds)

    try:
        result = await call_service(caller, call, agent=agent, clock=time.time, on_reply=on_reply)
    except CallError as error:
        seconds = time.perf_counter() - begin if trial.seconds is None else trial.seconds
        return trial._replace(outcome=error.fault.value, detail=error.detail, seconds=seconds)
    if isinstance(result, Declined):
        return trial._replace(outcome="declined", result=result)
    return trial._replace(outcome="published", result=show_content(result, secrets))


async def sample_call(
    database: Database, decryptor: EndpointDecryptor, company: str | int, udid: str
) -> Call:
    """A call about one of the company's own campaigns of format connector, or a made-up one.

    `company` is an id, or a text that is a name or an id. The device `udid` is a test device.
    Raises NothingToTryError, and SQLAlchemy's errors.
    """
    async with database.read() as session:
        found = await find_company(session, company)
        if found is None:
            raise NothingToTryError(f"there is no company {company!r}")
        connector = await session.scalar(select(Connector).where(Connector.company_id == found.id))
        if connector is None:
            raise NothingToTryError(f"the company {found.name!r} has no connector")
        campaign, venue, beacon = await _campaign(session, found.id)
    fields = ConnectorEndpoint.__struct_fields__
    endpoint = ConnectorEndpoint(**{name: getattr(connector, name) for name in fields})
    try:
        decrypted = decryptor.decrypt(endpoint)
    except EndpointError as error:
        raise NothingToTryError(str(error)) from None
    now = time.time()
    return Call(
        id=str(uuid.uuid4()),
        company_id=found.id,
        campaign=campaign,
        venue=venue,
        beacon=beacon,
        proximity="near",
        device=CallDevice(udid=udid, name="android", version="14", model="sample", test=True),
        detected_at=format_instant(now),
        fresh_until=now + _FRESH_SECONDS,
        endpoint=decrypted,
    )


async def _campaign(
    session: AsyncSession, company_id: int
) -> tuple[NamedReference, NamedReference, CallBeacon]:
    """The company's first campaign of format connector that targets a beacon."""
    row = (
        await session.execute(
            select(Campaign.id, Campaign.name, Venue.id, Venue.name, Beacon)
            .join(Venue, Campaign.venue_id == Venue.id)
            .join(Campaign.beacons)
            .where(Venue.company_id == company_id, Campaign.format == "connector")
            .order_by(Campaign.id, Beacon.id)
            .limit(1)
        )
    ).first()
    if row is None:
        nothing = str(uuid.UUID(int=0))
        beacon_reference = CallBeacon(id=0, name="sample beacon", uuid=nothing, major=0, minor=0)
        return (
            NamedReference(0, "sample campaign"),
            NamedReference(0, "sample venue"),
            beacon_reference,
        )
    campaign_id, campaign, venue_id, venue, beacon = row
    beacon_reference = CallBeacon(
        id=beacon.id, name=beacon.name, uuid=beacon.uuid, major=beacon.major, minor=beacon.minor
    )
    return NamedReference(campaign_id, campaign), NamedReference(venue_id, venue), beacon_reference
