"""A catalog for replays."""

from math import inf
from typing import Any

import orjson

from engine.cli.replay.catalogs import ReplayedCatalog
from engine.cli.replay.decisions import CatalogReplay, VisitReplay, VisitSettings

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"

TRIPLE: dict[str, Any] = {"uuid": UUID, "major": 1, "minor": 1}


def campaign(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "title": "t",
        "push": "p",
        "format": "template",
        "template": "x",
        "cache": "day",
        "start": "2020-01-01T00:00:00+0100",
        "end": "2020-12-31T00:00:00+0100",
        "active": True,
        "beacons": [TRIPLE],
    } | fields


def document(*campaigns: dict[str, Any], **company: Any) -> bytes:
    venue = {"name": "Hall", "address": "1 Main Street", "active": True, "time_zone": "Asia/Tokyo"}
    beacon = TRIPLE | {"name": "Door", "active": True, "proximity": "far"}
    venue |= {"beacons": [beacon], "campaigns": campaigns}
    return orjson.dumps({"companies": [{"name": "Mall", "venues": [venue]} | company]})


def catalog_replay(
    catalog: ReplayedCatalog, max_age: float, visits: VisitSettings | None = None
) -> CatalogReplay:
    """With the visits of the companies that ask for them, or by the settings."""
    return CatalogReplay(catalog, VisitReplay(visits, catalog, -inf, max_age, 2.0))
