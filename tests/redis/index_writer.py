"""A catalog in memory, and its entries, for tests of readers of the index."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from catalog.index.drain import IndexStore
from catalog.index.entries import (
    ApplicationEntry,
    CompanyGeofences,
    ConnectorEntry,
    Marker,
    PlaceEntry,
    application_field,
    beacon_field,
    bucket,
    campaign_field,
    connector_field,
    encode,
    geofence_field,
    geofences_field,
    rules_field,
    tag_field,
)
from catalog.redis_connection import RedisClient
from rules.geofences import Circle
from rules.model import Cap, CompanyRules
from tests.rules.records import UUID, beacon, campaign, geofence, tag

PREFIX = "contract:"


class Writer:
    """A catalog in memory, written by the real writer in turns of its own."""

    def __init__(self, redis: RedisClient) -> None:
        self.store = IndexStore(redis, prefix=PREFIX)
        self.fields: dict[str, bytes] = {}
        self.generation = 0
        self.rebuilds = 0

    def marker(self) -> Marker:
        self.generation += 1
        return Marker(catalog="ours", generation=self.generation, writer="test")

    async def put(self, puts: dict[str, bytes], removals: Iterable[str] = ()) -> None:
        removed = list(removals)
        self.fields |= puts
        for field in removed:
            self.fields.pop(field, None)
        before, *_ = await self.store.markers()
        await self.store.write(before, self.marker(), puts, removed)

    async def rebuild(self) -> None:
        self.rebuilds += 1
        marker = self.marker()
        await self.store.fill(marker, self.fields)
        counts = Counter(map(bucket, self.fields))
        await self.store.finish(await self.store.markers(), marker, counts)

    async def rebuild_if_missing(self) -> None:
        if None in await self.store.markers():
            await self.rebuild()


def beacon_entry(campaigns: list[int], minor: int = 2, **fields: Any) -> dict[str, bytes]:
    entry = PlaceEntry(place=beacon(minor=minor, **fields), campaigns=campaigns)
    return {beacon_field(UUID, 1, minor): encode(entry)}


def geofence_entry(number: int, campaigns: list[int], **fields: Any) -> dict[str, bytes]:
    entry = PlaceEntry(place=geofence(id=number, **fields), campaigns=campaigns)
    return {geofence_field(number): encode(entry)}


def circles_entry(*circles: Circle) -> dict[str, bytes]:
    """The geofences of the company, as positions find them."""
    return {geofences_field(1): encode(CompanyGeofences(list(circles)))}


def tag_entry(campaigns: list[int], **fields: Any) -> dict[str, bytes]:
    place = tag(**fields)
    entry = PlaceEntry(place=place, campaigns=campaigns)
    return {tag_field(1, place.kind, place.value): encode(entry)}


def application_entry(api_key: str, **fields: Any) -> dict[str, bytes]:
    entry = ApplicationEntry(**{"id": 3, "company_id": 1, "active": True} | fields)
    return {application_field(api_key): encode(entry)}


def campaign_entry(number: int, **fields: Any) -> dict[str, bytes]:
    return {campaign_field(number): encode(campaign(id=number, **fields))}


def connector_entry(url: str) -> dict[str, bytes]:
    entry = ConnectorEntry(
        id=5, company_id=1, name="c", url=url, method="POST", auth="header", parameters="token"
    )
    return {connector_field(1): encode(entry)}


def rules_entry(*caps: Cap, **fields: Any) -> dict[str, bytes]:
    return {rules_field(1): encode(CompanyRules(company_id=1, caps=caps, **fields))}
