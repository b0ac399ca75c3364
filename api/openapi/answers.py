"""Schemas of what is returned."""

from typing import Any, get_args

from api.openapi import examples
from catalog.audit import AUDITED_KINDS as AUDITED
from catalog.fields.company import AREAS, NOTHING, WRITE
from catalog.models import WEEKDAYS
from catalog.statistics import STATISTIC_KINDS
from connectors.model import CallFault
from connectors.reports import BreakerStatus

Schema = dict[str, Any]
_INTEGER: Schema = {"type": "integer"}
_STRING: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}
_TIMESTAMP: Schema = {
    "type": "string",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}$",
    "example": "2026-11-20T10:00:00+0100",
}
_TIME: Schema = {"type": "string", "pattern": r"^\d\d:\d\d$", "example": "09:00"}
_ID: Schema = {"type": "integer", "minimum": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_ANY_LIST: Schema = {"type": "array", "items": {}}


def answer_schemas() -> dict[str, Schema]:
    """By name."""
    return {
        "Error": _object(
            {"status": _word("error"), "message": _STRING, "code": _INTEGER},
            optional={"fields": {"type": "object", "additionalProperties": _STRING}},
        ),
        "AuthenticationError": _object(
            {"status": _word("error"), "error_message": _STRING, "code": _INTEGER},
            optional={"fields": {"type": "object", "additionalProperties": _STRING}},
        ),
        "Done": _object({"status": _word("success"), "code": _INTEGER}),
        **_session(),
        **_profile(),
        **_venue(),
        "Campaign": _campaign(),
        "Connector": _connector(),
        **_calls(),
        **_device(),
        "StatisticLine": _statistic_line(),
        "AuditEntry": _audit_entry(),
    }


def _object(
    required: Schema, *, optional: Schema | None = None, example: Any = None
) -> dict[str, Any]:
    told: Schema = {
        "type": "object",
        "required": list(required),
        "properties": required | (optional or {}),
        "additionalProperties": False,
    }
    return told if example is None else told | {"example": example}


def _word(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _or_null(schema: Schema) -> Schema:
    return schema | {"nullable": True}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _many(name: str) -> Schema:
    return {"type": "array", "items": _ref(name)}


def _session() -> dict[str, Schema]:
    session = _object({"token": _STRING, "email": _STRING, "valid": _TIMESTAMP})
    envelope = {"status": _word("success"), "session": _ref("Session"), "code": _INTEGER}
    return {"Session": session, "SessionEnvelope": _object(envelope, example=examples.SESSION)}


def _profile() -> dict[str, Schema]:
    level = {"type": "integer", "minimum": NOTHING, "maximum": WRITE}
    company = {
        "id": _ID,
        "name": _STRING,
        "image": _STRING,
        "description": _STRING,
        "active": _FLAG,
        "create_on": _TIMESTAMP,
    }
    profile = {
        "id": _ID,
        "email": _STRING,
        "name": _STRING,
        "fonction": _STRING,
        "active": _FLAG,
        "company": _object(company),
        "permission": _object(dict.fromkeys(AREAS, level)),
    }
    application = {
        "id": _ID,
        "name": _STRING,
        "type": _STRING,
        "api_key": _STRING,
        "api_id": _STRING,
        "active": _FLAG,
        "expire_on": _or_null(_TIMESTAMP),
    }
    return {
        "Profile": _object(profile, example=examples.PROFILE),
        "Application": _object(application, example=examples.APPLICATION_ANSWER),
    }


def _venue() -> dict[str, Schema]:
    venue = {
        "id": _ID,
        "name": _STRING,
        "address": _STRING,
        "active": _FLAG,
        "width": _or_null(_COUNT),
        "height": _or_null(_COUNT),
        "image": _STRING,
        "time_zone": _STRING,
    }
    beacon = {
        "id": _ID,
        "name": _STRING,
        "uuid": {"type": "string", "format": "uuid"},
        "major": _COUNT,
        "minor": _COUNT,
        "active": _FLAG,
        "proximity": _word("immediate", "near", "far"),
        "x": _or_null(_INTEGER),
        "y": _or_null(_INTEGER),
        "color": _STRING,
        "tags": _many("Tag"),
    }
    geofence = {
        "id": _ID,
        "name": _STRING,
        "longitude": _NUMBER,
        "latitude": _NUMBER,
        "radius": _ID,
        "active": _FLAG,
    }
    return {
        "Venue": _object(venue, example={"id": 1, **examples.VENUE}),
        "Tag": _object({"id": _ID, "name": _STRING}),
        "Beacon": _object(beacon, example=examples.BEACON_ANSWER),
        "Geofence": _object(geofence, example={"id": 1, **examples.GEOFENCE}),
    }


def _campaign() -> Schema:
    return _object(
        {
            "id": _ID,
            "name": _STRING,
            "hash": _STRING,
            "push": _STRING,
            "title": _STRING,
            "format": _word("template", "url", "html", "connector"),
            **dict.fromkeys(("template", "url", "html", "background", "color"), _STRING),
            "cache": _STRING,
            "start": _TIMESTAMP,
            "end": _TIMESTAMP,
            "start_time": _TIME,
            "end_time": _TIME,
            "active": _FLAG,
            **dict.fromkeys(WEEKDAYS, _FLAG),
            "beacons": _many("Beacon"),
            "geofencings": _many("Geofence"),
            "nfcs": _ANY_LIST,
            "qrcodes": _ANY_LIST,
            "tags": _many("Tag"),
        },
        example=examples.CAMPAIGN_ANSWER,
    )


def _connector() -> Schema:
    signed = _FLAG | {"description": "Whether calls are signed: the secret itself is never told."}
    return _object(
        {
            "id": _ID,
            "name": _STRING,
            "url": _STRING,
            "method": _word("GET", "POST"),
            "auth": _word("header", "get"),
            "parameters": _STRING | {"description": "A JSON list, encoded as a string."},
            "signed": signed,
        },
        example={"id": 1, **examples.CONNECTOR, "signed": False},
    )


def _calls() -> dict[str, Schema]:
    outcome = _word("published", "declined", *(fault.value for fault in CallFault)) | {
        "description": "What came of it, or why nothing did."
    }
    detail = _STRING | {"description": "More about a failure."}
    status = _or_null(_INTEGER | {"description": "Of the reply; null when there was none."})
    seconds = _or_null(_NUMBER | {"description": "null when the service was not asked."})
    breaker = {
        "state": _word(*get_args(BreakerStatus)),
        "calls": _COUNT | {"description": "The last calls, which it looks at; none while open."},
        "failures": _COUNT | {"description": "How many of them failed."},
        "seconds": _NUMBER | {"description": "Until it lets a call try."},
    }
    call = {
        "id": _STRING | {"description": "The call's idempotency-key, and its notification's id."},
        "create_on": _TIMESTAMP,
        "campaign_id": _ID,
        "outcome": outcome,
        "detail": detail,
        "status": status,
        "seconds": seconds,
        "tries": _COUNT,
    }
    pairs = {"type": "array", "items": _object({"key": _STRING, "value": _STRING})}
    request = {"method": _STRING, "url": _STRING, "headers": pairs, "body": _STRING}
    left_out = {"type": "array", "items": _STRING, "description": "Parameters that are not sent."}
    content = {"title": _STRING, "push": _STRING, "format": _word("template", "url", "html")}
    trial = {
        "outcome": outcome,
        "detail": detail,
        "seconds": seconds,
        "request": _or_null(_object(request | {"left_out": left_out})),
        "reply": _or_null(_object({"status": _INTEGER, "headers": pairs, "body": _STRING})),
        "notification": _or_null(_object(content | {"content": _STRING})),
    }
    return {
        "ConnectorCalls": _object(
            {"breaker": _object(breaker), "calls": {"type": "array", "items": _object(call)}},
            example=examples.CONNECTOR_CALLS,
        ),
        "ConnectorTrial": _object(trial, example=examples.CONNECTOR_TRIAL),
    }


def _statistic_line() -> Schema:
    deleted = _STRING | {"description": "Empty when the record is gone."}
    return _object(
        {
            "day": {"type": "string", "format": "date"},
            "venue_id": _ID,
            "venue": deleted,
            "kind": _word(*STATISTIC_KINDS),
            "id": _ID,
            "name": deleted,
            "detections": _COUNT,
            "devices": _COUNT,
            "notifications": _COUNT,
        },
        example=examples.STATISTIC_LINE,
    )


def _audit_entry() -> Schema:
    fields = {"type": "object", "description": "The fields that changed; secrets are masked."}
    return _object(
        {
            "id": _ID,
            "create_on": _TIMESTAMP,
            "account_id": _ID,
            "email": _STRING,
            "request": _STRING | {"description": "The `x-request-id` of the request."},
            "action": _word("create", "edit", "delete"),
            "kind": _word(*AUDITED),
            "ref": _ID | {"description": "The id of the record."},
            "before": fields,
            "after": fields,
        },
        example=examples.AUDIT_ENTRY,
    )


def _device() -> dict[str, Schema]:
    device = {
        "id": _ID,
        "nb_beacon": _COUNT,
        "nb_campaign": _COUNT,
        "udid": _STRING,
        "name": _STRING,
        "version": _STRING,
        "model": _STRING,
        "create_on": _TIMESTAMP,
        "update_on": _TIMESTAMP,
        "test": _FLAG,
    }
    known = _object(
        device,
        optional={"token_push": _STRING, "id_connector": _INTEGER},
        example=examples.DEVICE,
    )
    trace = {
        "lieu": _STRING | {"description": "Empty when the venue is gone."},
        "lieu_id": _ID,
        "id": _ID,
        "beacon": {"anyOf": [_ref("Beacon"), _object({"id": _ID})]},
        "status": _STRING,
        "create_on": _TIMESTAMP,
        "ip": _STRING,
    }
    detail = {
        "device": _many("Device"),
        "auth": _many("AuthenticationTrace"),
        "beacon": _many("BeaconTrace"),
    }
    return {
        "Device": known,
        "AuthenticationTrace": _object({"id": _ID, "create_on": _TIMESTAMP, "ip": _STRING}),
        "BeaconTrace": _object(trace),
        "DeviceDetail": _object(detail, example=examples.DEVICE_DETAIL),
    }
