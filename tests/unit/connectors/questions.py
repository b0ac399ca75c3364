"""A call, as plain as it gets."""

from dataclasses import replace
from typing import Any

from connectors.model import Beacon, Call, Device, Endpoint, Method, Named, Place

ID = "5b65e1ab-325a-5714-9e85-1624f7c33474"
ENDPOINT = Endpoint(url="https://example.org/content", method=Method.POST, place=Place.HEADER)
CALL = Call(
    id=ID,
    company_id=1,
    campaign=Named(7, "Café"),
    venue=Named(8, "Hall"),
    beacon=Beacon(id=9, name="door", uuid="f7826da6-4fa2-4e98-8024-bc5b71e0893e", major=1, minor=2),
    proximity="near",
    device=Device(udid="phone 1&2", name="android", test=False),
    detected_at="2026-11-20T10:00:00+0000",
    fresh_until=1000.0,
    endpoint=ENDPOINT,
)


def call(**endpoint: Any) -> Call:
    """The call, with another endpoint."""
    return replace(CALL, endpoint=replace(ENDPOINT, **endpoint))
