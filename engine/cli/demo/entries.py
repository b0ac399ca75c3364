"""The demo's catalog: loaded as `catalog load` does, then read back as the index is built."""

from typing import Any

import orjson

from catalog.database import Database, open_database
from catalog.index.catalog_reader import beacon_fields, campaign_fields
from catalog.index.entries import BeaconEntry, decode_beacon, decode_campaign
from engine.cli.catalog_loading import update_index, write_catalog
from engine.cli.demo.reasons import Entry
from engine.process.settings import Settings
from rules.model import CampaignSnapshot


async def load_demo_catalog(settings: Settings, document: dict[str, Any]) -> list[Entry]:
    """Load `document` and return its campaigns, in its order. Raises LoadError,
    SQLAlchemyError, RedisError."""
    database = open_database(settings.database_url.get_secret_value())
    try:
        await write_catalog(settings, database, orjson.dumps(document))
        await update_index(settings, database)
        return await _read(database)
    finally:
        await database.close()


async def _read(database: Database) -> list[Entry]:
    async with database.read() as session:
        beacons: list[BeaconEntry] = []
        async for _, fields in beacon_fields(session):
            beacons += map(decode_beacon, fields.values())
        campaigns: list[CampaignSnapshot] = []
        async for _, fields in campaign_fields(session):
            campaigns += map(decode_campaign, fields.values())
    return [
        Entry(campaign, [entry.beacon for entry in beacons if campaign.id in entry.campaigns])
        for campaign in campaigns
    ]
