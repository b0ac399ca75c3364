"""A call, as plain as it gets."""

from dataclasses import replace
from typing import Any

from connectors.model import Call, Endpoint, HttpMethod, ParameterPlace

ID = "5b65e1ab-325a-5714-9e85-1624f7c33474"
ENDPOINT = Endpoint(
    url="https://example.org/content", method=HttpMethod.POST, place=ParameterPlace.HEADER
)


def document(id_: str, udid: str, **device: Any) -> dict[str, Any]:
    """What a service receives."""
    unknown = dict.fromkeys(("id_connector", "version", "model"))
    uuid = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
    return {
        "id": id_,
        "campaign": {"id": 7, "name": "Café"},
        "venue": {"id": 8, "name": "Hall"},
        "beacon": {"id": 9, "name": "door", "uuid": uuid, "major": 1, "minor": 2},
        "proximity": "near",
        "device": {"udid": udid, "name": "android", "test": False, **unknown, **device},
        "detected_at": "2026-11-20T10:00:00+0000",
    }


CALL = Call(
    id=ID,
    company_id=1,
    document=document(ID, "phone 1&2"),
    fresh_until=1000.0,
    endpoint=ENDPOINT,
)


def call(**endpoint: Any) -> Call:
    """The call, with another endpoint."""
    return replace(CALL, endpoint=replace(ENDPOINT, **endpoint))
