"""The demo's catalog: loaded as `catalog load` does, then read back as the index is built."""

from datetime import UTC, datetime
from typing import Any

import orjson

from catalog.database import Database, open_database
from catalog.index.build import beacon_fields, campaign_fields
from catalog.index.entries import BeaconEntry, decode_beacon, decode_campaign
from catalog.load import load_document
from catalog.secrets import open_cipher
from engine.demo.reasons import Entry
from engine.settings import Settings


async def load_demo_catalog(settings: Settings, document: dict[str, Any]) -> list[Entry]:
    """Load `document` and return its campaigns, in its order. Raises LoadError, SQLAlchemyError."""
    database = open_database(settings.database_url.get_secret_value())
    key = settings.secret_key
    try:
        cipher = None if key is None else open_cipher(key.get_secret_value())
        raw = orjson.dumps(document)
        await load_document(database.write, raw, cipher, clock=lambda: datetime.now(UTC))
        return await _read(database)
    finally:
        await database.close()


async def _read(database: Database) -> list[Entry]:
    async with database.read() as session:
        beacons: list[BeaconEntry] = []
        async for _, fields in beacon_fields(session):
            beacons += map(decode_beacon, fields.values())
        campaigns = []
        async for _, fields in campaign_fields(session):
            campaigns += map(decode_campaign, fields.values())
    return [
        Entry(campaign, [entry.beacon for entry in beacons if campaign.id in entry.campaigns])
        for campaign in campaigns
    ]
