"""Writes docs/schemas: a JSON Schema for each message and one AsyncAPI document.

Generated from the types that decode and encode the messages, so they cannot drift: `make schemas`
writes them, and a test compares.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from engine.kafka.dead_letters import REASONS
from engine.kafka.messages import (
    Authentication,
    ConnectorCall,
    Detection,
    Notification,
    PresenceEvent,
    ReceivedDevice,
)

DIRECTORY = Path(__file__).parent / "schemas"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MESSAGES: dict[str, tuple[type[msgspec.Struct], str]] = {
    "detections": (Detection, "receive"),
    "authentications": (Authentication, "receive"),
    "notifications": (Notification, "send"),
    "presence": (PresenceEvent, "send"),
    "connector-calls": (ConnectorCall, "send"),
}
_TRACE = {
    "traceparent": {
        "type": "string",
        "pattern": "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$",
        "description": "W3C trace context, if there is one; copied to the messages that follow",
    },
    "tracestate": {"type": "string", "maxLength": 512, "description": "belongs to traceparent"},
}
_DETECTION_HEADERS = {"type": "object", "properties": _TRACE}
_NOTIFICATION_HEADERS = {
    "type": "object",
    "required": ["id", "campaign"],
    "properties": {
        "id": {"type": "string", "format": "uuid", "description": "the message's id"},
        "campaign": {"type": "string", "description": "the campaign's id"},
        **_TRACE,
    },
}
_DEAD_LETTER_HEADERS = {
    "type": "object",
    "required": ["reason", "detail", "topic", "partition", "offset", "failed_at"],
    "properties": {
        "reason": {"type": "string", "enum": [reason.value for reason in REASONS]},
        "detail": {"type": "string", "description": "for people"},
        "topic": {"type": "string", "description": "the topic of the original record"},
        "partition": {"type": "string", "pattern": "^[0-9]+$"},
        "offset": {"type": "string", "pattern": "^[0-9]+$"},
        "failed_at": {"type": "string", "examples": ["2026-11-20T10:00:00+0000"]},
    },
    "patternProperties": {
        "^original-": {
            "description": "a header of the original record, whose name follows the prefix: "
            "those of CloudEvents, of the MQTT topic, of the schema and of the trace"
        }
    },
}


def _published(schema: dict[str, Any]) -> dict[str, Any]:
    """With the rule that detections.py checks and the type cannot express."""
    # `Device` is a table of the catalog, hence another name in the code.
    renamed: dict[str, Any] = json.loads(
        json.dumps(schema).replace(ReceivedDevice.__name__, "Device")
    )
    detection = renamed.get("$defs", renamed).get("Detection", {})
    if detection:
        detection["oneOf"] = [
            {
                "required": ["uuid", "major", "minor"],
                "anyOf": [{"required": ["proximity"]}, {"required": ["rssi"]}],
            },
            {"required": ["geofence"]},
            {"required": ["position", "api_key"]},
            {"required": ["tag", "api_key"]},
        ]
    return renamed


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3 document of all topics, with the default prefix of topic names."""
    _, components = msgspec.json.schema_components(
        [type_ for type_, _ in _MESSAGES.values()], ref_template="#/components/schemas/{name}"
    )
    channels = {name: _channel(name, type_) for name, (type_, _) in _MESSAGES.items()}
    dead_letter = {
        "summary": "The original key and value, byte for byte.",
        "contentType": "application/octet-stream",
        "headers": _DEAD_LETTER_HEADERS,
        "payload": {},
    }
    channels["dead-letters"] = {
        "address": "proximity.dead-letters",
        "messages": {"DeadLetter": dead_letter},
    }
    actions = {name: action for name, (_, action) in _MESSAGES.items()} | {"dead-letters": "send"}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Proximity engine",
            "version": "1",
            "description": (
                "Beacon detections in, campaign notifications out. The key of every message is "
                "the device's udid. Every topic name begins with TOPIC_PREFIX (proximity. by "
                "default)."
            ),
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            f"{action}-{name}": {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name, action in actions.items()
        },
        "components": {"schemas": _published(components)},
    }


def _channel(name: str, type_: type[msgspec.Struct]) -> dict[str, Any]:
    message: dict[str, Any] = {
        "summary": (type_.__doc__ or "").splitlines()[0],
        "payload": {"$ref": f"#/components/schemas/{type_.__name__}"},
    }
    if type_ in (Notification, ConnectorCall):
        message["headers"] = _NOTIFICATION_HEADERS
    elif type_ is Detection:
        message["headers"] = _DETECTION_HEADERS
    return {"address": f"proximity.{name}", "messages": {type_.__name__: message}}


def documents() -> dict[str, str]:
    """Every published file by name: a JSON Schema (2020-12) of each message, and AsyncAPI."""
    files = {
        f"{name}.schema.json": {"$schema": _DIALECT, **_published(msgspec.json.schema(type_))}
        for name, (type_, _) in _MESSAGES.items()
    }
    files["asyncapi.json"] = asyncapi()
    return {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}


if __name__ == "__main__":
    for file_name, text in documents().items():
        (DIRECTORY / file_name).write_text(text, encoding="utf-8")
