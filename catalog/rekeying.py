"""Encrypts the data of all connectors with the first key of SECRET_KEY, to retire older keys."""

from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from catalog.database import Database
from catalog.errors import DecryptionError
from catalog.models import Connector
from catalog.secrets import Cipher

_AT_ONCE = 100  # in one transaction, so that no edit waits for long


@dataclass(slots=True)
class Rekeyed:
    """The numbers of connectors that were encrypted again and that already had the first key, and
    the companies of those that no key decrypts."""

    renewed: int = 0
    current: int = 0
    unreadable: list[str] = field(default_factory=list)


async def rekey_connectors(database: Database, cipher: Cipher) -> Rekeyed:
    """Encrypt all connectors again. It is safe to run this beside edits, and repeatedly."""
    done, last = Rekeyed(), 0
    async with database.write.begin() as session:
        highest = await session.scalar(select(func.max(Connector.id))) or 0
    while last < highest:
        last = await _next(database, cipher, done, last) or highest
    return done


async def _next(database: Database, cipher: Cipher, done: Rekeyed, last: int) -> int | None:
    """Encrypt the next connectors after the id `last`. Returns the id of the last of them."""
    async with database.write.begin() as session:
        wanted = (
            select(Connector)
            .where(Connector.id > last)
            .order_by(Connector.id)
            .limit(_AT_ONCE)
            .options(joinedload(Connector.company))
            .with_for_update(of=Connector)
        )
        connectors = list(await session.scalars(wanted))
        for connector in connectors:
            _rekey(connector, cipher, done)
    return connectors[-1].id if connectors else None


def _rekey(connector: Connector, cipher: Cipher, done: Rekeyed) -> None:
    try:
        parameters = cipher.renewed(connector.parameters) if connector.parameters else None
        secret = cipher.renewed(connector.secret) if connector.secret else None
    except DecryptionError:
        done.unreadable.append(connector.company.name)
        return
    connector.parameters = parameters or connector.parameters
    connector.secret = secret or connector.secret
    if parameters or secret:
        done.renewed += 1
    else:
        done.current += 1
