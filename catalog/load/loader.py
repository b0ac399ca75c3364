"""Loads a document: reads, checks and writes it, all in one transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy.exc import IntegrityError

from catalog.database import SessionFactory
from catalog.errors import VenueDeletedError
from catalog.fields.base import Faults, FieldFault
from catalog.limits import DEFAULT_LIMITS, CatalogLimits
from catalog.load.checks import check, check_room_left, note_repeats
from catalog.load.companies import write_company
from catalog.load.document import DocumentCompany, read_document
from catalog.load.record_writer import LoadSummary, RecordWriter
from catalog.load.stored_records import find_stored
from catalog.load.venues import write_venues
from catalog.secrets import Cipher

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
    """Load a document (see the package) in one transaction, and count what it changed.

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
    summary = LoadSummary()
    try:
        async with session_factory.begin() as session:
            writer = RecordWriter(session=session, summary=summary, cipher=cipher, now=clock())
            await _load(writer, companies, limits, faults)
    except (IntegrityError, VenueDeletedError):
        raise LoadError([FieldFault("", "the catalog was changed meanwhile: load again")]) from None
    return summary


async def _check_urls(
    companies: Sequence[DocumentCompany], url_fault: UrlFault, faults: Faults
) -> None:
    found = [item.connector for item in companies if item.connector is not None]
    found = [connector for connector in found if "url" in connector.values]
    # All urls at once, because each look-up has its own deadline.
    answers = await asyncio.gather(*(url_fault(each.values["url"]) for each in found))
    for connector, answer in zip(found, answers, strict=True):
        if answer is not None:
            faults.note(f"{connector.place}.url", answer)


async def _load(
    writer: RecordWriter,
    companies: Sequence[DocumentCompany],
    limits: CatalogLimits,
    faults: Faults,
) -> None:
    stored = [await find_stored(writer.session, item) for item in companies]
    for item, known in zip(companies, stored, strict=True):
        encrypts = writer.cipher is not None
        check(item, known, encrypts=encrypts, limits=limits, faults=faults)
    if faults:
        raise LoadError(faults)
    for item, known in zip(companies, stored, strict=True):
        company = await write_company(writer, item, known)
        write_venues(writer, company, item, known)
        await writer.session.flush()
        await check_room_left(writer, company, limits, faults)
    if faults:
        raise LoadError(faults)
