"""A company's connector as the catalog has it, and a sample detection to ask it about."""

import time
import uuid

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.models import Beacon, Campaign, Company, Connector, Venue
from connectors.errors import EndpointError, NothingToTryError
from connectors.model import Call, CallBeacon, CallDevice, NamedReference
from engine.connector.endpoint_opener import EndpointDecryptor
from engine.kafka.messages import ConnectorEndpoint
from engine.kafka.timestamps import format_instant

_FRESH_SECONDS = 300.0


async def sample_call(
    database: Database, opener: EndpointDecryptor, company: str | int, udid: str
) -> Call:
    """A call about one of the company's own campaigns of format connector, or made-up ones.

    `company` is an id, or a text that is a name or an id. The device `udid` is a test device.
    Raises NothingToTryError, and SQLAlchemy's errors.
    """
    async with database.read() as session:
        found = await _company(session, company)
        connector = await session.scalar(select(Connector).where(Connector.company_id == found.id))
        if connector is None:
            raise NothingToTryError(f"the company {found.name!r} has no connector")
        campaign, venue, beacon = await _subject(session, found.id)
    endpoint = ConnectorEndpoint(
        id=connector.id,
        name=connector.name,
        url=connector.url,
        method=connector.method,
        auth=connector.auth,
        parameters=connector.parameters,
        secret=connector.secret,
    )
    try:
        opened = opener.open(endpoint)
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
        endpoint=opened,
    )


async def _company(session: AsyncSession, wanted: str | int) -> Company:
    """A text is a name, else an id; a number is an id."""
    conditions: list[ColumnElement[bool]] = []
    if isinstance(wanted, int):
        conditions.append(Company.id == wanted)
    else:
        conditions.append(Company.name == wanted)
        if wanted.isascii() and wanted.isdigit():
            conditions.append(Company.id == int(wanted))
    for condition in conditions:
        found = await session.scalar(select(Company).where(condition))
        if found is not None:
            return found
    raise NothingToTryError(f"there is no company {wanted!r}")


async def _subject(
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
        heard = CallBeacon(id=0, name="sample beacon", uuid=nothing, major=0, minor=0)
        return NamedReference(0, "sample campaign"), NamedReference(0, "sample venue"), heard
    campaign_id, campaign, venue_id, venue, beacon = row
    heard = CallBeacon(
        id=beacon.id, name=beacon.name, uuid=beacon.uuid, major=beacon.major, minor=beacon.minor
    )
    return NamedReference(campaign_id, campaign), NamedReference(venue_id, venue), heard
