"""`proximity catalog load FILE`: loads one JSON document into the catalog, all of it or nothing.

The document is `{"companies": [...]}` with the interface's field names, in every spelling that
requests may use. Existing records are found by company name, e-mail, api_key, udid, venue name in
its company, triple, and campaign or geofence name in its venue. Records and fields that the
document does not name are not changed. Loading the same document twice changes nothing the second
time.

The document needs fewer fields than the interface: a new campaign's weekdays default to true and
its hours to 00:00 and 24:00. A list (`tags`, `beacons`, `geofencings`) replaces the whole stored
list. `password` is used only for a new account. `permission` defaults to all levels; if it is
given, areas that it omits are 0 on a new account and unchanged on an existing one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy.exc import IntegrityError

from catalog.database import SessionFactory
from catalog.errors import VenueDeletedError
from catalog.fields import Faults, FieldFault
from catalog.limits import DEFAULT_LIMITS, CatalogLimits
from catalog.load.checks import check_against_stored, check_room_left, note_repeats
from catalog.load.document import DocumentRecord, read_document
from catalog.load.records import (
    LoadSummary,
    RecordCount,
    RecordWriter,
    find_stored,
    write_company,
)
from catalog.secrets import Cipher

__all__ = ["LoadError", "LoadSummary", "RecordCount", "load_document"]

# The fault of a connector's url (it is not public, say), or None.
UrlFault = Callable[[str], Awaitable[str | None]]


class LoadError(Exception):
    """A document was refused, and nothing was changed. `faults` has every fault in it."""

    def __init__(self, faults: Sequence[FieldFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


async def load_document(
    session_factory: SessionFactory,
    raw: bytes,
    cipher: Cipher | None,
    *,
    limits: CatalogLimits = DEFAULT_LIMITS,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    url_fault: UrlFault | None = None,
) -> LoadSummary:
    """Load a document in one transaction, and count what it changed.

    `session_factory` is the database's `write`. A document with a connector needs `cipher`, and
    `url_fault` checks its url. Raises LoadError, SQLAlchemyError, OSError or TimeoutError; then
    nothing has changed.
    """
    faults = Faults()
    companies = read_document(raw, faults)
    note_repeats(companies, faults)
    if faults and not companies:
        raise LoadError(faults)
    if url_fault is not None:
        await _check_urls(companies, url_fault, faults)
    try:
        async with session_factory.begin() as session:
            writer = RecordWriter(session=session, cipher=cipher, limits=limits, now=clock())
            await _load(writer, companies, faults)
    except (IntegrityError, VenueDeletedError):
        raise LoadError([FieldFault("", "the catalog was changed meanwhile: load again")]) from None
    return writer.summary


async def _load(writer: RecordWriter, companies: Sequence[DocumentRecord], faults: Faults) -> None:
    stored = [await find_stored(writer.session, item) for item in companies]
    for item, known in zip(companies, stored, strict=True):
        check_against_stored(writer, item, known, faults)
    if faults:
        raise LoadError(faults)
    for item, known in zip(companies, stored, strict=True):
        company = await write_company(writer, item, known)
        await writer.session.flush()
        await check_room_left(writer, company, faults)
    if faults:
        raise LoadError(faults)


async def _check_urls(
    companies: Sequence[DocumentRecord], url_fault: UrlFault, faults: Faults
) -> None:
    connectors = [each for item in companies for each in item.inside["connector"]]
    connectors = [each for each in connectors if "url" in each.values]
    # All urls at once, because each look-up has its own deadline.
    answers = await asyncio.gather(*(url_fault(each.values["url"]) for each in connectors))
    for connector, answer in zip(connectors, answers, strict=True):
        if answer is not None:
            faults.note(f"{connector.place}.url", answer)
