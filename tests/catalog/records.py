"""Records with every required field, and the index as a whole."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

from sqlalchemy import func, select

from catalog.database import Database
from catalog.index.drain import DrainResult, IndexStore, drain_once
from catalog.index.entries import BUCKETS, MARKER_FIELD
from catalog.index.reading import READERS
from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Geofence,
    Outbox,
    ScanTag,
    Tag,
    Venue,
    offset_minutes,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"


class Records:
    """Makes records; each has a name of its own. Nothing is written."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def company(self, **other: Any) -> Company:
        name = f"company {next(self._numbers)}"
        return Company(**{"name": name, "create_on": NOON, **other})

    def venue(self, company: Company, **other: Any) -> Venue:
        name = f"venue {next(self._numbers)}"
        return Venue(**{"company": company, "name": name, "address": "-", "active": True, **other})

    def tag(self, company: Company) -> Tag:
        return Tag(company=company, name=f"tag {next(self._numbers)}")

    def beacon(self, venue: Venue, **other: Any) -> Beacon:
        number = next(self._numbers)
        values = {
            "venue": venue,
            "name": f"beacon {number}",
            "uuid": UUID,
            "major": 1,
            "minor": number,
            "active": True,
            "proximity": "far",
        }
        return Beacon(**(values | other))

    def geofence(self, venue: Venue, **other: Any) -> Geofence:
        values = {"name": f"geofence {next(self._numbers)}", "active": True, "radius": 100}
        circle = {"latitude": 48.85, "longitude": 2.35}
        return Geofence(**(values | circle | {"venue": venue} | other))

    def scan_tag(self, venue: Venue, kind: str = "qrcode", **other: Any) -> ScanTag:
        number = next(self._numbers)
        values = {"name": f"{kind} {number}", "value": f"https://example.org/{number}"}
        of = {"venue": venue, "company": other.get("company") or venue.company, "kind": kind}
        return ScanTag(**(of | values | {"active": True} | other))

    def application(self, company: Company, **other: Any) -> Application:
        number = next(self._numbers)
        values = {"name": f"app {number}", "type": "ios", "api_key": f"key-{number}"}
        return Application(**({"company": company, "active": True} | values | other))

    def campaign(self, venue: Venue, **other: Any) -> Campaign:
        values: dict[str, Any] = {
            "venue": venue,
            "name": f"campaign {next(self._numbers)}",
            "push": "Come in",
            "title": "Hello",
            "format": "html",
            "html": "<p>",
            "cache": "day",
            "delay": 86400,
            "start": NOON,
            "end": NOON.replace(year=2027),
            "start_minute": 0,
            "end_minute": 1440,
            "active": True,
        }
        values |= other
        for name in ("start", "end"):
            written = values.pop(name)
            values |= {f"{name}_at": written, f"{name}_offset": offset_minutes(written)}
        return Campaign(**values)

    def connector(self, company: Company, **other: Any) -> Connector:
        values = {"company": company, "name": "ours", "url": "https://example.org/"}
        return Connector(**(values | {"method": "GET", "auth": "get", "parameters": "t"} | other))


async def drain(database: Database, store: IndexStore) -> None:
    """Write the whole outbox to the index."""
    while await drain_once(database, store) is not DrainResult.IDLE:
        pass


async def index_of(redis: Any, store: IndexStore) -> dict[str, bytes]:
    """Every field of the index but the markers, which must be there."""
    content: dict[str, bytes] = {}
    for number in range(BUCKETS):
        fields = await redis.hgetall(store.keys.bucket(number))
        assert fields.pop(MARKER_FIELD.encode())
        content |= {name.decode(): value for name, value in fields.items()}
    return content


async def fresh_index(database: Database) -> dict[str, bytes]:
    """What the index should hold, built from SQL."""
    content: dict[str, bytes] = {}
    async with database.read() as session:
        for read in READERS.values():
            async for fields in read(session):
                content |= fields
    return content


async def outbox_size(database: Database) -> int:
    """How many rows the outbox holds."""
    async with database.read() as session:
        return await session.scalar(select(func.count()).select_from(Outbox)) or 0
