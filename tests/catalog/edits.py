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


class Edits:
    """Makes one random edit per call of `make`."""

    def __init__(self, dice: random.Random, records: Records) -> None:
        self._dice = dice
        self._records = records

    async def make(self, session: AsyncSession) -> str:
        edits = [
            *[self.add_company] * 3,
            *[self.edit_company] * 2,
            self.add_venue,
            self.add_venue,
            self.edit_venue,
            *[self.add_beacon] * 6,
            *[self.edit_beacon] * 4,
            self.tag_beacon,
            self.move_beacon,
            *[self.add_campaign] * 4,
            *[self.edit_campaign] * 4,
            self.target,
            self.target,
            self.tag_campaign,
            self.connect,
            *[self.add_place] * 4,
            *[self.edit_place] * 4,
            self.add_application,
            self.edit_application,
            *[self.delete] * 3,
        ]
        edit = self._dice.choice(edits)
        await edit(session)
        await session.flush()
        return edit.__name__

    async def add_company(self, session: AsyncSession) -> None:
        company = self._records.company()
        session.add_all([company, self._records.tag(company), self._records.tag(company)])

    async def edit_company(self, session: AsyncSession) -> None:
        if company := await self._any(session, Company):
            self._change(company, presence=not company.presence, time_zone="Asia/Tokyo")
            self._change(company, caps=[] if company.caps else [{"max": 3, "per": "day"}])

    async def add_venue(self, session: AsyncSession) -> None:
        if company := await self._any(session, Company):
            zone = self._dice.choice([None, "Europe/Paris"])
            session.add(self._records.venue(company, time_zone=zone))

    async def edit_venue(self, session: AsyncSession) -> None:
        if venue := await self._any(session, Venue):
            self._change(venue, name=str(self._dice.random()), active=self._dice.random() < 0.5)
            self._change(venue, width=self._dice.randrange(9), time_zone="Asia/Tokyo")
            self._change(venue, visit_silence=60)

    async def add_beacon(self, session: AsyncSession) -> None:
        if venue := await self._any(session, Venue):
            tags = await self._tags(session, venue)
            session.add(self._records.beacon(venue, tags=tags))

    async def edit_beacon(self, session: AsyncSession) -> None:
        if beacon := await self._any(session, Beacon):
            self._change(beacon, name=str(self._dice.random()), proximity="near")
            self._change(beacon, active=not beacon.active, minor=self._dice.randrange(65536))
            taken = select(Beacon.id).where(Beacon.minor == beacon.minor, Beacon.uuid == UUID)
            if await session.scalar(taken):
                session.expire(beacon)

    async def tag_beacon(self, session: AsyncSession) -> None:
        if beacon := await self._any(session, Beacon):
            beacon.tags = await self._tags(session, await session.get_one(Venue, beacon.venue_id))

    async def move_beacon(self, session: AsyncSession) -> None:
        beacon, venue = await self._any(session, Beacon), await self._any(session, Venue)
        if beacon and venue:
            beacon.venue = venue

    async def add_place(self, session: AsyncSession) -> None:
        if venue := await self._any(session, Venue):
            company = await session.get_one(Company, venue.company_id)
            tags = await self._tags(session, venue)
            place = self._dice.choice(
                [
                    self._records.geofence(venue, tags=tags),
                    self._records.scan_tag(venue, "nfc", tags=tags, company=company),
                    self._records.scan_tag(venue, tags=tags, company=company),
                ]
            )
            session.add(place)

    async def edit_place(self, session: AsyncSession) -> None:
        if tag := await self._any(session, ScanTag):
            value = f"value {self._dice.random()}"
            self._change(tag, name="new", active=not tag.active, value=value)
        if fence := await self._any(session, Geofence):
            self._change(fence, name="new", active=not fence.active, radius=7, longitude=5.5)
            fence.tags = await self._tags(session, await session.get_one(Venue, fence.venue_id))

    async def add_application(self, session: AsyncSession) -> None:
        if company := await self._any(session, Company):
            session.add(self._records.application(company))

    async def edit_application(self, session: AsyncSession) -> None:
        if found := await self._any(session, Application):
            key = f"key {self._dice.random()}"
            self._change(found, active=not found.active, expire_on=NOON, api_key=key)

    async def add_campaign(self, session: AsyncSession) -> None:
        if venue := await self._any(session, Venue):
            campaign = self._records.campaign(venue, tags=await self._tags(session, venue))
            campaign.beacons = await self._some(session, Beacon)
            session.add(campaign)

    async def edit_campaign(self, session: AsyncSession) -> None:
        if campaign := await self._any(session, Campaign):
            self._change(campaign, active=not campaign.active, html=str(self._dice.random()))
            self._change(campaign, format=self._dice.choice(["html", "connector"]), weekdays=5)
            self._change(campaign, on=self._dice.choice(["detection", "exit"]), priority=9)

    async def target(self, session: AsyncSession) -> None:
        if campaign := await self._any(session, Campaign):
            campaign.beacons = await self._some(session, Beacon)
            campaign.geofencings = await self._some(session, Geofence)
            campaign.scan_tags = await self._some(session, ScanTag)

    async def tag_campaign(self, session: AsyncSession) -> None:
        if campaign := await self._any(session, Campaign):
            venue = await session.get_one(Venue, campaign.venue_id)
            campaign.tags = await self._tags(session, venue)

    async def connect(self, session: AsyncSession) -> None:
        if company := await self._any(session, Company):
            query = select(Connector).where(Connector.company_id == company.id)
            connector = await session.scalar(query)
            if connector is None:
                session.add(self._records.connector(company))
            else:
                connector.url = f"https://example.org/{self._dice.random()}"

    async def delete(self, session: AsyncSession) -> None:
        kinds: list[Any] = [Beacon] * 4 + [Campaign] * 4 + [Connector, Venue]
        kinds += [Geofence, ScanTag, Application]
        if record := await self._any(session, self._dice.choice(kinds)):
            await session.delete(record)

    def _change(self, record: Any, **values: Any) -> None:
        name = self._dice.choice(list(values))
        setattr(record, name, values[name])

    async def _any(self, session: AsyncSession, model: Any) -> Any:
        options = []
        if model in (Beacon, Campaign, Geofence, ScanTag):
            options.append(selectinload(model.tags))
        if model is Campaign:
            links = (Campaign.beacons, Campaign.geofencings, Campaign.scan_tags)
            options += [selectinload(link) for link in links]
        query = select(model).order_by(model.id).options(*options)
        found = (await session.scalars(query)).all()
        return self._dice.choice(found) if found else None

    async def _some(self, session: AsyncSession, model: Any) -> list[Any]:
        found = (await session.scalars(select(model).order_by(model.id))).all()
        return self._dice.sample(found, min(len(found), self._dice.randrange(4)))

    async def _tags(self, session: AsyncSession, venue: Venue) -> list[Tag]:
        query = select(Tag).where(Tag.company_id == venue.company_id).order_by(Tag.id)
        found = (await session.scalars(query)).all()
        return [tag for tag in found if self._dice.random() < 0.5]
