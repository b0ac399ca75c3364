"""A call, as plain as it gets."""

from dataclasses import replace
from typing import Any

from connectors.model import (
    Call,
    CallBeacon,
    CallDevice,
    Endpoint,
    HttpMethod,
    NamedReference,
    ParameterPlace,
)

ID = "5b65e1ab-325a-5714-9e85-1624f7c33474"
ENDPOINT = Endpoint(
    url="https://example.org/content", method=HttpMethod.POST, place=ParameterPlace.HEADER
)
CALL = Call(
    id=ID,
    company_id=1,
    campaign=NamedReference(7, "Café"),
    venue=NamedReference(8, "Hall"),
    beacon=CallBeacon(
        id=9, name="door", uuid="f7826da6-4fa2-4e98-8024-bc5b71e0893e", major=1, minor=2
    ),
    proximity="near",
    device=CallDevice(udid="phone 1&2", name="android", test=False),
    detected_at="2026-11-20T10:00:00+0000",
    fresh_until=1000.0,
    endpoint=ENDPOINT,
)


def call(**endpoint: Any) -> Call:
    """The call, with another endpoint."""
    return replace(CALL, endpoint=replace(ENDPOINT, **endpoint))
