"""What a beacon or a campaign names of others: tags, beacons, geofences.

Requests name a tag by its name (made if it is new) or id, a beacon by its id or triple, a
geofence by its id. All must be the company's own.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from api.body import raise_faults
from catalog.fields.reader import FieldError, Reader, Schema
from catalog.fields.reading import Fault, Faults, Field, read_fields
from catalog.fields.values import INT64, integer, line
from catalog.fields.venue import TRIPLE, Triple
from catalog.models import Beacon, Geofence, Tag, Venue

MOST = 1000
Reference = int | str | Triple
_id = integer(1, INT64)
_name = line()
_ID_OBJECT = {"type": "object", "required": ["id"], "properties": {"id": _id.schema}}
_NAMED = {"type": "object", "required": ["name"], "properties": {"name": _name.schema}}
_WITH_TRIPLE = {
    "type": "object",
    "required": [field.name for field in TRIPLE],
    "properties": {field.name: field.read.schema for field in TRIPLE},
    "not": {"required": ["id"]},
}


def _list_of(read_one: Callable[[Any], Reference], accepted: str, *schemas: Schema) -> Reader:
    def read(value: Any) -> list[Reference]:
        if not isinstance(value, list) or len(value) > MOST:
            raise FieldError(f"accepted: a list of at most {MOST} {accepted}")
        try:
            return list(map(read_one, value))
        except (FieldError, KeyError, TypeError):
            raise FieldError(f"accepted: a list of {accepted}") from None

    return Reader(read, {"type": "array", "maxItems": MOST, "items": {"anyOf": list(schemas)}})


def _read_tag(value: Any) -> Reference:
    if isinstance(value, dict) and "name" not in value:
        return int(_id(value["id"]))
    return str(_name(value["name"] if isinstance(value, dict) else value))


def _read_geofence(value: Any) -> Reference:
    return int(_id(value["id"] if isinstance(value, dict) else value))


def _read_beacon(value: Any) -> Reference:
    if not isinstance(value, dict) or "id" in value:
        return _read_geofence(value)
    faults = Faults()
    values = read_fields(TRIPLE, value, place="", faults=faults)
    if faults:
        raise FieldError
    return Triple(**values)


TAGS = Field(
    name="tags",
    read=_list_of(
        _read_tag,
        'objects {"name": string} or {"id": integer}, or names',
        _NAMED,
        _ID_OBJECT | {"not": {"required": ["name"]}},
        dict(_name.schema),
    ),
)
CAMPAIGN_TIES = (
    TAGS,
    Field(
        name="beacons",
        read=_list_of(
            _read_beacon,
            "beacons by id, or by uuid, major and minor",
            _ID_OBJECT,
            _WITH_TRIPLE,
            dict(_id.schema),
        ),
    ),
    Field(
        name="geofencings",
        read=_list_of(_read_geofence, "geofences by id", _ID_OBJECT, dict(_id.schema)),
    ),
)


async def find_tags(
    session: AsyncSession, company_id: int, references: Sequence[Reference]
) -> list[Tag]:
    """The tags, new ones added to the session. Raises ApiError 400 for unknown ids."""
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
    """The beacons. Raises ApiError 400 for those that are not the company's."""
    known = select(Beacon).join(Beacon.venue).where(Venue.company_id == company_id)
    by_id = await _by(session, known, Beacon.id, references, int, lambda beacon: beacon.id)
    triple: Any = tuple_(Beacon.uuid, Beacon.major, Beacon.minor)
    by_triple = await _by(
        session, known, triple, references, Triple, lambda b: Triple(b.uuid, b.major, b.minor)
    )
    return _all_found("beacons", "beacon", references, by_id | by_triple)


async def find_geofences(
    session: AsyncSession, company_id: int, references: Sequence[Reference]
) -> list[Geofence]:
    """The geofences. Raises ApiError 400 for those that are not the company's."""
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
    raise_faults(
        [
            Fault(f"{field}[{place}]", f"{reference}: not a {what} of this company")
            for place, reference in enumerate(references)
            if reference not in found
        ]
    )
    # Two references may mean the same record.
    return list(dict.fromkeys(found[reference] for reference in references))
