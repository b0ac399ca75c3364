"""A catalog for replays, and a replay in the test's process."""

import csv
import io
from math import inf
from typing import Any, NamedTuple

import orjson

from engine.cli.replay import replayed_rows
from engine.cli.replay.catalogs import ReplayedCatalog
from engine.cli.replay.decisions import CatalogReplay, VisitReplay, VisitSettings
from engine.process.settings import Settings

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"

TRIPLE: dict[str, Any] = {"uuid": UUID, "major": 1, "minor": 1}


class Sent(NamedTuple):
    """A notification that was published, or would have been."""

    id: str
    detected_at: str
    campaign: str
    beacon: str
    udid: str


def reasons(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The detections by reason, of the results of one catalog."""
    return {row["reason"]: row["detections"] for row in rows if row["kind"] == "reason"}


async def replayed(settings: Settings, **request: Any) -> tuple[list[dict[str, Any]], list[Sent]]:
    """The results of a replay, and the notifications that it would have sent, by id."""
    stream = io.StringIO()
    found = await replayed_rows(settings, **request, sends=stream)
    stream.seek(0)
    rows = [Sent(*(row[name] for name in Sent._fields)) for row in csv.DictReader(stream)]
    return found, sorted(rows)


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
    followed = VisitReplay(
        settings=visits, catalog=catalog, since=-inf, max_age=max_age, path_loss_exponent=2.0
    )
    return CatalogReplay(catalog, followed)
