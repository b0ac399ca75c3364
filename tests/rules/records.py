"""Records for the tests of the rules: plain unless the test says otherwise."""

from datetime import UTC, datetime
from typing import Any

from rules.model import (
    BeaconSnapshot,
    CampaignSnapshot,
    GeofenceSnapshot,
    TagSnapshot,
    VenueSnapshot,
    Zone,
)

UUID = "e2c56db5-dffb-48d2-b060-d0f5a71096e0"


def epoch(text: str) -> float:
    """Epoch seconds of an ISO timestamp with an offset."""
    return datetime.fromisoformat(text).timestamp()


def campaign(**fields: Any) -> CampaignSnapshot:
    """A campaign open all through 2026, without a cache delay."""
    return CampaignSnapshot(
        **{
            "id": 1,
            "name": "Reading room",
            "active": True,
            "title": "Welcome",
            "push": "The reading room is open",
            "format": "template",
            "content": "<p>Welcome</p>",
            "delay": 0,
            "start": datetime(2026, 1, 1, tzinfo=UTC),
            "end": datetime(2026, 12, 31, tzinfo=UTC),
            "start_minute": 0,
            "end_minute": 1440,
            "weekdays": 0b1111111,
            **fields,
        }
    )


def venue(**fields: Any) -> VenueSnapshot:
    """An active venue without a time zone."""
    return VenueSnapshot(**{"id": 1, "name": "Library", "company_id": 1, "active": True, **fields})


def beacon(**fields: Any) -> BeaconSnapshot:
    """An active beacon that triggers up to near."""
    return BeaconSnapshot(
        **{
            "id": 1,
            "name": "Desk",
            "uuid": UUID,
            "major": 1,
            "minor": 2,
            "active": True,
            "reach": Zone.NEAR,
            "venue": venue(),
            **fields,
        }
    )


def geofence(**fields: Any) -> GeofenceSnapshot:
    """An active geofence of 200 m around a place in Paris."""
    return GeofenceSnapshot(
        **{
            "id": 1,
            "name": "Court",
            "active": True,
            "latitude": 48.8584,
            "longitude": 2.2945,
            "radius": 200.0,
            "venue": venue(),
            **fields,
        }
    )


def tag(**fields: Any) -> TagSnapshot:
    """An active QR code."""
    return TagSnapshot(
        **{
            "id": 1,
            "name": "Poster",
            "active": True,
            "kind": "qrcode",
            "value": "https://example.org/poster",
            "venue": venue(),
            **fields,
        }
    )
