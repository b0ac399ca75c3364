"""The demo's catalog: data/catalog.json with its dates and times filled in.

The catalog is loaded like `catalog load`, and read back in the form of the index.
"""

import json
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from catalog.database import Database, open_database
from catalog.index.catalog_reader import beacon_fields, campaign_fields
from catalog.index.entries import BeaconEntry, decode_beacon, decode_campaign
from catalog.models import WEEKDAYS
from engine.cli.catalog_loader import update_index, write_catalog
from engine.cli.demo.reasons import DemoCampaign
from engine.process.settings import Settings
from rules.model import CampaignSnapshot

ZONE = ZoneInfo("Europe/Madrid")
_NOT_TODAY = "{not_today}"


def demo_document(
    now: datetime,
    *,
    connector: str = "https://library.example/loans",
    password: str = "of no account",  # noqa: S107
) -> dict[str, Any]:
    """The document for a demo that runs at `now` (aware).

    `connector` is the url of the customer's service, `password` that of the account.
    """
    template = files("engine.cli.demo").joinpath("data/catalog.json").read_text(encoding="utf-8")
    local = now.astimezone(ZONE)
    values = _times(local) | {"{connector}": connector, "{password}": password}
    document: dict[str, Any] = _filled(json.loads(template), values, _weekdays(local))
    return document


async def load_demo_catalog(settings: Settings, document: dict[str, Any]) -> list[DemoCampaign]:
    """Load `document` and return its campaigns, in the document's order.

    Raises LoadError, SQLAlchemyError, RedisError.
    """
    database = open_database(settings.database_url.get_secret_value())
    try:
        await write_catalog(settings, database, orjson.dumps(document))
        await update_index(settings, database)
        return await _read(database)
    finally:
        await database.close()


async def _read(database: Database) -> list[DemoCampaign]:
    async with database.read() as session:
        beacons: list[BeaconEntry] = []
        async for _, fields in beacon_fields(session):
            beacons += map(decode_beacon, fields.values())
        campaigns: list[CampaignSnapshot] = []
        async for _, fields in campaign_fields(session):
            campaigns += map(decode_campaign, fields.values())
    return [
        DemoCampaign(each, [entry.beacon for entry in beacons if each.id in entry.campaigns])
        for each in campaigns
    ]


def _times(local: datetime) -> dict[str, str]:
    days = {"a_month_ago": -30, "last_week": -7, "next_week": 7, "in_a_month": 30}
    hours = {"in_two_hours": 2, "in_four_hours": 4}
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    dates = {name: midnight + timedelta(days=n) for name, n in days.items()}
    return {
        **{f"{{{name}}}": f"{date:%Y-%m-%dT%H:%M:%S%z}" for name, date in dates.items()},
        **{f"{{{name}}}": f"{local + timedelta(hours=n):%H:%M}" for name, n in hours.items()},
    }


def _weekdays(local: datetime) -> dict[str, bool]:
    """Every weekday but today and tomorrow: the demo may run over midnight."""
    near = {local.weekday(), (local.weekday() + 1) % 7}
    return {name: number not in near for number, name in enumerate(WEEKDAYS)}


def _filled(value: Any, values: dict[str, str], weekdays: dict[str, bool]) -> Any:
    if isinstance(value, list):
        return [_filled(item, values, weekdays) for item in value]
    if isinstance(value, dict):
        return {
            key: weekdays[key] if item == _NOT_TODAY else _filled(item, values, weekdays)
            for key, item in value.items()
        }
    return values.get(value, value) if isinstance(value, str) else value
