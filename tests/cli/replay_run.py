"""A catalog for replays, and a replay in the test's process."""

import csv
import io
from math import inf
from typing import Any, NamedTuple

import orjson

from engine.cli.replay import ReplayRequest, perform
from engine.cli.replay.catalogs import ReplayedCatalog
from engine.cli.replay.decisions import CatalogReplay, ReplayPeriod, VisitReplay, VisitSettings
from engine.cli.replay.output import ReplayFindings
from engine.process.settings import Settings

_ALWAYS = ReplayPeriod()
UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"

TRIPLE = {"uuid": UUID, "major": 1, "minor": 1}


class Sent(NamedTuple):
    """A notification that was published, or would have been."""

    id: str
    detected_at: str
    campaign: str
    beacon: str
    udid: str


async def replayed(settings: Settings, **request: Any) -> tuple[ReplayFindings, list[Sent]]:
    """The findings of a replay, and the notifications that it would have sent, by id."""
    stream = io.StringIO()
    findings = await perform(settings, ReplayRequest(**request), stream)
    stream.seek(0)
    rows = [Sent(*(row[name] for name in Sent._fields)) for row in csv.DictReader(stream)]
    return findings, sorted(rows)


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
    """Without a shift; with the visits of the companies that ask for them, or by the settings."""
    followed = VisitReplay(
        settings=visits,
        catalog=catalog,
        since=-inf,
        shift=0.0,
        max_age=max_age,
        path_loss_exponent=2.0,
    )
    return CatalogReplay(catalog, max_age, followed)
