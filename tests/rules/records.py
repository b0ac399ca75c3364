"""Records for the tests of the rules: plain unless the test says otherwise."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from rules.model import (
    BeaconSnapshot,
    CampaignSnapshot,
    GeofenceSnapshot,
    TagSnapshot,
    VenueSnapshot,
    Zone,
)

UUID = "e2c56db5-dffb-48d2-b060-d0f5a71096e0"
CAMPAIGN = CampaignSnapshot(
    id=1,
    name="Reading room",
    active=True,
    title="Welcome",
    push="The reading room is open",
    format="template",
    content="<p>Welcome</p>",
    delay=0,
    start=datetime(2026, 1, 1, tzinfo=UTC),
    end=datetime(2026, 12, 31, tzinfo=UTC),
    start_minute=0,
    end_minute=1440,
    weekdays=0b1111111,
)
VENUE = VenueSnapshot(id=1, name="Library", company_id=1, active=True)
PLACE: dict[str, Any] = {"id": 1, "active": True, "venue": VENUE}
BEACON = BeaconSnapshot(**PLACE, name="Desk", uuid=UUID, major=1, minor=2, reach=Zone.NEAR)
GEOFENCE = GeofenceSnapshot(**PLACE, name="Court", latitude=48.8584, longitude=2.2945, radius=200.0)
TAG = TagSnapshot(**PLACE, name="Poster", kind="qrcode", value="https://example.org/poster")


def epoch(text: str) -> float:
    """Epoch seconds of an ISO timestamp with an offset."""
    return datetime.fromisoformat(text).timestamp()


def campaign(**fields: Any) -> CampaignSnapshot:
    """A campaign open all through 2026, without a cache delay."""
    return replace(CAMPAIGN, **fields)


def venue(**fields: Any) -> VenueSnapshot:
    """An active venue without a time zone."""
    return replace(VENUE, **fields)


def beacon(**fields: Any) -> BeaconSnapshot:
    """An active beacon that triggers up to near."""
    return replace(BEACON, **fields)


def geofence(**fields: Any) -> GeofenceSnapshot:
    """An active geofence of 200 m around a place in Paris."""
    return replace(GEOFENCE, **fields)


def tag(**fields: Any) -> TagSnapshot:
    """An active QR code."""
    return replace(TAG, **fields)
