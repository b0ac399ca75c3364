"""Encrypts the data of all connectors with the first key of SECRET_KEY, to retire older keys."""

from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from catalog.database import Database
from catalog.errors import DecryptionError
from catalog.models import Connector
from catalog.secrets import Cipher

_BATCH = 100  # in one transaction, so that no edit waits for long


@dataclass(slots=True)
class RekeyResult:
    """How many connectors were encrypted again, and how many already had the first key.

    `unreadable` has the companies of connectors that no key decrypts.
    """

    renewed: int = 0
    current: int = 0
    unreadable: list[str] = field(default_factory=list)


async def rekey_connectors(database: Database, cipher: Cipher) -> RekeyResult:
    """Encrypt all connectors again. It is safe to run this beside edits, and repeatedly."""
    result, last = RekeyResult(), 0
    async with database.write.begin() as session:
        highest = await session.scalar(select(func.max(Connector.id))) or 0
    while last < highest:
        last = await _next(database, cipher, result, last) or highest
    return result


async def _next(database: Database, cipher: Cipher, result: RekeyResult, last: int) -> int | None:
    """Encrypt the next connectors after the id `last`. Returns the id of the last of them."""
    async with database.write.begin() as session:
        query = (
            select(Connector)
            .where(Connector.id > last)
            .order_by(Connector.id)
            .limit(_BATCH)
            .options(joinedload(Connector.company))
            .with_for_update(of=Connector)
        )
        connectors = list(await session.scalars(query))
        for connector in connectors:
            _rekey(connector, cipher, result)
    return connectors[-1].id if connectors else None


def _rekey(connector: Connector, cipher: Cipher, result: RekeyResult) -> None:
    try:
        parameters = cipher.renewed(connector.parameters) if connector.parameters else None
        secret = cipher.renewed(connector.secret) if connector.secret else None
    except DecryptionError:
        result.unreadable.append(connector.company.name)
        return
    connector.parameters = parameters or connector.parameters
    connector.secret = secret or connector.secret
    if parameters or secret:
        result.renewed += 1
    else:
        result.current += 1
