"""Finds the records that a beacon or a campaign refers to: tags, beacons, geofences.

Requests name a tag by its name (created if it is new) or id, a beacon by its id or triple, a
geofence by its id. All must belong to the company.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import ApiError, bad_fields
from api.requests import Reference
from catalog.fields.venue import Triple
from catalog.models import Beacon, Geofence, Tag, Venue


async def find_tags(
    session: AsyncSession, company_id: int, references: Sequence[Reference]
) -> list[Tag]:
    """The tags; new ones are added to the session. Raises ApiError 400 for unknown ids."""
    known = select(Tag).where(Tag.company_id == company_id)
    by_id = await _by(session, known, Tag.id, references, int, lambda tag: tag.id)
    by_name = await _by(session, known, Tag.name, references, str, lambda tag: tag.name)
    for name in references:
        if isinstance(name, str) and name not in by_name:
            by_name[name] = Tag(company_id=company_id, name=name)
            session.add(by_name[name])
    return _all_found("tags", "tag", references, by_id | by_name)


async def find_beacons(
    session: AsyncSession, company_id: int, references: Sequence[Reference]
) -> list[Beacon]:
    """The beacons. Raises ApiError 400 for beacons that are not the company's."""
    known = select(Beacon).join(Beacon.venue).where(Venue.company_id == company_id)
    by_id = await _by(session, known, Beacon.id, references, int, lambda beacon: beacon.id)
    triple: Any = tuple_(Beacon.uuid, Beacon.major, Beacon.minor)
    by_triple = await _by(
        session, known, triple, references, Triple, lambda b: Triple(b.uuid, b.major, b.minor)
    )
    return _all_found("beacons", "beacon", references, by_id | by_triple)


async def find_beacon(session: AsyncSession, company_id: int, reference: Reference) -> Beacon:
    """One beacon. Raises ApiError 400 if it is not the company's."""
    try:
        (found,) = await find_beacons(session, company_id, [reference])
    except ApiError:
        raise bad_fields({"beacon": f"{reference}: not a beacon of this company"}) from None
    return found


async def find_geofences(
    session: AsyncSession, company_id: int, references: Sequence[Reference]
) -> list[Geofence]:
    """The geofences. Raises ApiError 400 for geofences that are not the company's."""
    known = select(Geofence).join(Geofence.venue).where(Venue.company_id == company_id)
    by_id = await _by(session, known, Geofence.id, references, int, lambda fence: fence.id)
    return _all_found("geofencings", "geofence", references, by_id)


async def _by(
    session: AsyncSession,
    known: Any,
    column: Any,
    references: Iterable[Reference],
    kind: type,
    key: Callable[[Any], Reference],
) -> dict[Reference, Any]:
    wanted = [reference for reference in references if isinstance(reference, kind)]
    if not wanted:
        return {}
    return {key(found): found for found in await session.scalars(known.where(column.in_(wanted)))}


def _all_found(
    field: str, what: str, references: Sequence[Reference], found: dict[Reference, Any]
) -> list[Any]:
    unknown = {
        f"{field}[{place}]": f"{reference}: not a {what} of this company"
        for place, reference in enumerate(references)
        if reference not in found
    }
    if unknown:
        raise bad_fields(unknown)
    # Two references may name the same record.
    return list(dict.fromkeys(found[reference] for reference in references))
