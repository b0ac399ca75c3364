"""A company whose records refer to each other, and the outbox rows of its writes."""

from sqlalchemy import delete, select

from catalog.database import Database
from catalog.models import (
    Beacon,
    Outbox,
)
from tests.catalog.records import UUID, Records

_OUTBOX = select(Outbox.kind, Outbox.ref)


class Scene:
    """A company with a venue, two beacons (one tagged), and a campaign tied to both."""

    def __init__(self, records: Records) -> None:
        self.company = records.company()
        self.venue = records.venue(self.company)
        self.tag, self.other_tag = records.tag(self.company), records.tag(self.company)
        self.beacon = records.beacon(self.venue)
        self.tagged = records.beacon(self.venue, tags=[self.tag])
        self.campaign = records.campaign(self.venue, beacons=[self.beacon], tags=[self.tag])
        self.connector = records.connector(self.company)

    @property
    def all(self) -> list:
        return [self.campaign, self.tagged, self.other_tag, self.connector]


async def emptied(database: Database) -> set[tuple[str, str]]:
    async with database.write.begin() as session:
        rows = {(kind, ref) for kind, ref in await session.execute(_OUTBOX)}
        await session.execute(delete(Outbox))
    return rows


def ref(beacon: Beacon) -> str:
    return f"{UUID}:{beacon.major}:{beacon.minor}"
