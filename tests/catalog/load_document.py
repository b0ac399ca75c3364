"""A document of one company, and its load."""

import json

import pytest

from catalog.database import Database
from catalog.load import LoadError, LoadSummary, load_document
from catalog.secrets import Cipher
from tests.catalog.records import NOON, UUID

CAMPAIGN = {
    "name": "Welcome",
    "push": "Come in",
    "title": "Hello",
    "format": "html",
    "html": "<p>",
    "cache": "15 minutes",
    "start": "2026-11-20T00:00:00+0100",
    "end": "2026-12-31T00:00:00+01:00",
    "active": 1,
    "thuesday": "0",
    "beacons": [{"uuid": UUID.upper().replace("-", ""), "major": "1", "minor": 2}],
    "tags": [{"name": "entrance"}],
    "geofencings": [{"name": "park"}],
}
BEACON = {"name": "Door", "uuid": UUID, "major": 1, "active": True, "proximity": "Near"}
DOCUMENT = {
    "companies": [
        {
            "name": "Library",
            "accounts": [{"email": "Ada@Example.org", "password": "correct horse"}],
            "applications": [{"name": "App", "type": "ios", "api_key": "key-1"}],
            "connector": {
                "name": "Ours",
                "url": "https://example.org/hook",
                "method": "post",
                "auth": "GET",
                "parameters": '[{"key": "k", "value": "v"}]',
            },
            "devices": [{"udid": "phone-1", "test": "1", "id_connector": 7}],
            "venues": [
                {
                    "name": "Main hall",
                    "address": "1 Square",
                    "active": 1,
                    "with": 40,
                    "map": "hall.png",
                    "time_zone": "Europe/Madrid",
                    "beacons": [
                        {**BEACON, "minor": 1, "tags": [{"name": "entrance"}]},
                        {**BEACON, "minor": 2, "x": 3},
                    ],
                    "geofences": [
                        {
                            "name": "park",
                            "longitude": -0.07,
                            "latitude": 39.9,
                            "radius": 100,
                            "active": True,
                        }
                    ],
                    "campaigns": [CAMPAIGN],
                }
            ],
        }
    ]
}


async def load(database: Database, document: dict, cipher: Cipher | None) -> LoadSummary:
    raw = json.dumps(document).encode()
    return await load_document(database.write, raw, cipher, clock=lambda: NOON)


async def faults_of(database: Database, document: dict, cipher: Cipher | None) -> dict[str, str]:
    with pytest.raises(LoadError) as caught:
        await load(database, document, cipher)
    return {fault.place: fault.message for fault in caught.value.faults}
