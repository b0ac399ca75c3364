"""The catalog of a workload: venues with beacons, each with campaigns of its own."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.lineup import ROOT, python_of

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
BEACONS = 1000
PLACES = ("beacon", "geofence", "position", "nfc")  # kinds of detections
API_KEY = "benchmark"
_A_VENUE = 100  # places; a venue has at most 1,000 campaigns
_DAY = timedelta(days=1)


def place_of(number: int) -> tuple[int, int]:
    """Major and minor of a beacon."""
    return 1, number


def centre_of(number: int) -> tuple[float, float]:
    """Latitude and longitude of a geofence."""
    return 40 + number // 100 / 50, 2 + number % 100 / 50


def make_catalog(
    database: str,
    redis: str,
    campaigns: int,
    kind: str = "beacon",
    *,
    company: Mapping[str, Any] | None = None,
    checkout: Path = ROOT,
) -> None:
    """A database with BEACONS beacons, or places of another kind, of so many campaigns each, of
    a company with these other fields. `checkout` itself migrates and loads it: tables differ
    between versions, the catalog file does not."""
    whole: dict[str, Any] = {
        "name": "Benchmark",
        "applications": [{"name": "App", "type": "ios", "api_key": API_KEY}],
        "venues": [_venue(first, campaigns, kind) for first in range(0, BEACONS, _A_VENUE)],
        **(company or {}),
    }
    servers = {"PROXIMITY_DATABASE_URL": database, "PROXIMITY_REDIS_URL": redis}
    for words in (["migrate"], ["catalog", "load", "-"], ["index", "rebuild"]):
        subprocess.run(
            [python_of(checkout), "-m", "engine.cli", *words],
            cwd=checkout,
            env=os.environ | servers,
            input=json.dumps({"companies": [whole]}).encode(),
            check=True,
            stdout=subprocess.DEVNULL,
        )


def _venue(first: int, campaigns: int, kind: str) -> dict[str, Any]:
    key = {"nfc": "nfcs", "beacon": "beacons"}.get(kind, "geofences")
    numbers = range(first, first + _A_VENUE)
    return {
        "name": f"Mall {first}",
        "address": "1 Main Street",
        "active": True,
        key: [
            {"name": f"Shop {number}", "active": True, **_place(kind, number)} for number in numbers
        ],
        "campaigns": [
            _campaign(number, each, kind) for number in numbers for each in range(campaigns)
        ],
    }


def _place(kind: str, number: int) -> dict[str, Any]:
    if kind == "beacon":
        return _triple(number) | {"proximity": "far"}
    if kind == "nfc":
        return {"value": f"tag {number}"}
    latitude, longitude = centre_of(number)
    return {"latitude": latitude, "longitude": longitude, "radius": 100}


def _triple(number: int) -> dict[str, Any]:
    major, minor = place_of(number)
    return {"uuid": UUID, "major": major, "minor": minor}


def _campaign(number: int, each: int, kind: str) -> dict[str, Any]:
    key = {"nfc": "nfcs", "beacon": "beacons"}.get(kind, "geofencings")
    now, written = datetime.now(UTC), "%Y-%m-%dT%H:%M:%S+0000"
    return {
        **_constant(number, each),
        "cache": "day",
        "start": (now - _DAY).strftime(written),
        "end": (now + 29 * _DAY).strftime(written),
        "start_time": "00:00",
        "end_time": "24:00",
        "active": True,
        key: [_triple(number) if kind == "beacon" else {"name": f"Shop {number}"}],
    }


def _constant(number: int, each: int) -> dict[str, Any]:
    return {
        "name": f"Offer {each} of Shop {number}",
        "title": "Welcome",
        "push": "An offer for you, today only",
        "format": "url",
        "url": "https://example.org/offers",
    }


def exported(campaigns: int) -> Iterator[dict[str, Any]]:
    """The campaigns at beacons as plain data, for programs other than the product."""
    now = datetime.now(UTC)
    for number in range(BEACONS * campaigns):
        beacon = number // campaigns
        fields = _constant(beacon, number % campaigns)
        yield {
            **_triple(beacon),
            "delay": int(_DAY.total_seconds()),
            "start": (now - _DAY).timestamp(),
            "end": (now + 29 * _DAY).timestamp(),
            # Those that are the same in every notification of the campaign.
            "fields": fields
            | {
                "campaign": {"id": number + 1, "name": fields.pop("name"), "hash": None},
                "company": {"id": 1},
                "venue": {"id": beacon // _A_VENUE + 1, "name": f"Mall {beacon // _A_VENUE}"},
                "beacon": {"id": beacon + 1, "name": f"Shop {beacon}", **_triple(beacon)},
                "background": None,
                "color": None,
            },
        }
