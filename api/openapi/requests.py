"""Schemas of what is accepted, from the tables that requests are read with."""

from collections.abc import Sequence
from typing import Any

from api.fields import (
    APPLICATION,
    BEACON,
    CAMPAIGN_CREATE,
    CAMPAIGN_EDIT,
    CREDENTIALS,
    NEW_PASSWORD,
    TEST,
)
from api.openapi import examples
from catalog.fields.connector import CONNECTOR
from catalog.fields.reader import any_case
from catalog.fields.reading import Field
from catalog.fields.values import text
from catalog.fields.venue import GEOFENCE, VENUE

Schema = dict[str, Any]
_FILLED = dict(text(None).schema)


def request_schemas() -> dict[str, Schema]:
    """By name. Fields beyond those listed are ignored."""
    return {
        "Credentials": _object(CREDENTIALS, examples.CREDENTIALS),
        "PasswordChange": _object(NEW_PASSWORD, examples.NEW_PASSWORD),
        "ApplicationInput": _object(APPLICATION, examples.APPLICATION),
        "VenueInput": _object(VENUE, examples.VENUE),
        "BeaconInput": _object(BEACON, examples.BEACON),
        "GeofenceInput": _object(GEOFENCE, examples.GEOFENCE),
        "CampaignCreate": _with_content(_object(CAMPAIGN_CREATE, examples.CAMPAIGN), created=True),
        "CampaignEdit": _with_content(_object(CAMPAIGN_EDIT, examples.CAMPAIGN), created=False),
        "ConnectorInput": _object(CONNECTOR, examples.CONNECTOR),
        "DeviceUpdate": _device_update(),
    }


def _object(fields: Sequence[Field], example: Schema) -> Schema:
    properties: Schema = {}
    rules: list[Schema] = []
    for field in fields:
        schema = _value(field)
        properties[field.name] = schema
        for other in field.also:
            told_as = f"Another name of {field.name}: where both are given, they say the same."
            properties[other] = schema | {"description": told_as}
        rules += _names(field)
    required = [field.name for field in fields if field.required and not field.also]
    told: Schema = {"type": "object", "properties": properties, "example": example}
    if required:
        told["required"] = required
    if rules:
        told["allOf"] = rules
    return told


def _names(field: Field) -> list[Schema]:
    """A required field may come under any of its names."""
    if not field.also or not field.required:
        return []
    return [{"anyOf": [{"required": [name]} for name in (field.name, *field.also)]}]


def _value(field: Field) -> Schema:
    schema = dict(field.read.schema)
    if field.nullable:
        schema["nullable"] = True
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None, *([""] if field.blank else [])]
    if field.secret:
        schema["writeOnly"] = True
    return schema


def _with_content(campaign: Schema, *, created: bool) -> Schema:
    """The field that `format` names must have something in it."""
    cases: list[Schema] = [_case("connector")]
    for name in ("template", "url", "html"):
        filled = dict(campaign["properties"][name])
        filled.pop("nullable", None)
        case = _case(name)
        case["properties"][name] = {"allOf": [filled, _FILLED]}
        if created:
            case["required"] = ["format", name]
        cases.append(case)
    return campaign | {"anyOf": cases}


def _case(word: str) -> Schema:
    pattern = f"^(?:{any_case(word)})$"
    return {
        "properties": {"format": {"type": "string", "pattern": pattern}},
        "required": ["format"],
    }


def _device_update() -> Schema:
    flag = dict(TEST[0].read.schema)
    item = {"type": "object", "required": ["test"], "properties": {"test": flag}}
    alone = {
        "type": "object",
        "required": ["test"],
        "properties": {"test": flag},
        "allOf": [{"not": {"required": ["device"]}}, {"not": {"required": ["datas"]}}],
    }
    return {
        "description": "The flag alone, or the device's detail as it was read, or its `datas`.",
        "anyOf": [alone, *(_array_of(name, item) for name in ("device", "datas"))],
        "example": {"device": [{"test": "1"}]},
    }


def _array_of(name: str, item: Schema) -> Schema:
    own = item | {"not": {"required": ["id"]}}
    array = {"type": "array", "minItems": 1, "items": own}
    told: Schema = {"type": "object", "required": [name], "properties": {name: array}}
    if name == "datas":
        told["not"] = {"required": ["device"]}
    return told
