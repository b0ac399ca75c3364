"""Random edits of a catalog, through a session as any writer makes them."""

import random
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Geofence,
    ScanTag,
    Tag,
    Venue,
)
from tests.catalog.records import NOON, UUID, Records

_LINKS: dict[Any, tuple[str, ...]] = {
    Beacon: ("tags",),
    Geofence: ("tags",),
    ScanTag: ("tags",),
    Campaign: ("tags", "beacons", "geofencings", "scan_tags"),
}
_KINDS: list[Any] = [Company, Venue, Application, Connector]
_KINDS += [Beacon, Geofence, ScanTag, Campaign] * 2


class Edits:
    """Makes one random edit per call of `make`: adds, changes, links or deletes a record."""

    def __init__(self, dice: random.Random, records: Records) -> None:
        self._dice = dice
        self._records = records

    async def make(self, session: AsyncSession) -> str:
        kind, edit = self._dice.choice(_KINDS), self._dice.choice("aaaacclld")
        record = await self._any(session, kind)
        if record is None or edit == "a":
            await self._add(session, kind)
        elif edit == "l" and kind in _LINKS:
            await self._link(session, record)
        elif edit == "d" and kind is not Company:
            await session.delete(record)
        else:
            await self._change(session, record)
        await session.flush()
        return f"{edit} {kind.__name__}"

    async def _add(self, session: AsyncSession, kind: Any) -> None:
        made, company = self._records, await self._any(session, Company)
        venue = await self._any(session, Venue)
        if company is None or kind is Company:
            company = made.company()
            session.add_all([company, made.tag(company), made.tag(company)])
        elif venue is None or kind is Venue:
            zone = self._dice.choice([None, "Europe/Paris"])
            session.add(made.venue(company, time_zone=zone))
        elif kind is Connector:
            query = select(Connector).where(Connector.company_id == company.id)
            if await session.scalar(query) is None:
                session.add(made.connector(company))
        elif kind is Application:
            session.add(made.application(company))
        else:
            place = self._dice.choice(["nfc", "qrcode"])
            owner = await session.get_one(Company, venue.company_id)
            makers: dict[Any, Any] = {
                Beacon: made.beacon,
                Geofence: made.geofence,
                ScanTag: lambda at, **more: made.scan_tag(at, place, company=owner, **more),
                Campaign: made.campaign,
            }
            session.add(makers[kind](venue, tags=await self._tags(session, venue)))

    async def _change(self, session: AsyncSession, record: Any) -> None:
        """Change one attribute; a beacon may also move to another venue."""
        text, number = f"https://example.org/{self._dice.random()}", self._dice.randrange(65536)
        is_active = self._dice.random() < 0.5
        zone = self._dice.choice([None, "Asia/Tokyo"])
        named = {"name": text, "active": is_active}
        changes: dict[Any, dict[str, Any]] = {
            Company: {"presence": is_active, "time_zone": zone, "caps": [{"max": 3, "per": "day"}]},
            Venue: {**named, "width": 4, "time_zone": zone, "visit_silence": 60},
            Application: {"active": is_active, "expire_on": NOON, "api_key": text},
            Connector: {"url": text},
            Beacon: {**named, "proximity": "near", "minor": number},
            Geofence: {**named, "radius": 7, "longitude": 5.5},
            ScanTag: {**named, "value": text},
            Campaign: {**named, "html": text, "format": "connector", "weekdays": 5, "on": "exit"},
        }
        to = changes[type(record)]
        name = self._dice.choice(list(to))
        taken = select(Beacon.id).where(Beacon.minor == number, Beacon.uuid == UUID)
        if isinstance(record, Beacon) and name == "active":
            record.venue = await self._any(session, Venue)
        elif name != "minor" or await session.scalar(taken) is None:
            setattr(record, name, to[name])

    async def _link(self, session: AsyncSession, record: Any) -> None:
        name = self._dice.choice(_LINKS[type(record)])
        if name == "tags":
            venue = await session.get_one(Venue, record.venue_id)
            record.tags = await self._tags(session, venue)
            return
        model: Any = {"beacons": Beacon, "geofencings": Geofence, "scan_tags": ScanTag}[name]
        found = (await session.scalars(select(model).order_by(model.id))).all()
        some = self._dice.sample(found, min(len(found), self._dice.randrange(4)))
        setattr(record, name, some)

    async def _any(self, session: AsyncSession, model: Any) -> Any:
        links = [selectinload(getattr(model, name)) for name in _LINKS.get(model, ())]
        query = select(model).order_by(model.id).options(*links)
        found = (await session.scalars(query)).all()
        return self._dice.choice(found) if found else None

    async def _tags(self, session: AsyncSession, venue: Venue) -> list[Tag]:
        query = select(Tag).where(Tag.company_id == venue.company_id).order_by(Tag.id)
        found = (await session.scalars(query)).all()
        return [tag for tag in found if self._dice.random() < 0.5]
