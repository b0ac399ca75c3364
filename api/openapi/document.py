"""Assembles the document in OpenAPI 3.0, which every tool reads."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.openapi.examples import EXAMPLES
from api.permissions import KEY_HEADER, TOKEN_HEADER
from api.requests import (
    BeaconInput,
    CampaignCreate,
    CampaignEdit,
    Credentials,
    DeviceUpdate,
    ExplainQuestion,
    PasswordChange,
)
from catalog.fields.base import Fields
from catalog.fields.company import ApplicationInput
from catalog.fields.connector import ConnectorInput
from catalog.fields.venue import GeofenceInput, VenueInput

_VERSION = "3.0.3"
_ABOUT = """Sessions, profile, devices (CRM), venues, beacons, geofences, campaigns, connector,
statistics, audit.

Sign in with `POST /v2/auth`, then send the account's e-mail as `x-service-key` and the token as
`x-service-token`. Flags are accepted as true/false, 1/0, also as strings; timestamps as
`2026-11-20T10:00:00+0100` or in RFC 3339. A PUT does not change optional fields that it omits.
Fields that are not listed are ignored.

A text is never null: it is empty if it was never set. A number or a time that was never set is
null. Only `token_push` and `id_connector` of a device are omitted if it has none. In requests null
and an empty text both clear an optional text.
"""
REQUESTS: tuple[type[Fields], ...] = (
    Credentials,
    PasswordChange,
    ApplicationInput,
    VenueInput,
    BeaconInput,
    GeofenceInput,
    CampaignCreate,
    CampaignEdit,
    ConnectorInput,
    DeviceUpdate,
    ExplainQuestion,
)
_REF = "#/components/schemas/"
# Keywords of JSON Schema that OpenAPI 3.0 lacks, or that only repeat the name of the field.
_LEFT_OUT = ("contentMediaType", "title", "default")


def document(app: FastAPI, version: str) -> dict[str, Any]:
    """The whole document for the application's routes."""
    made = get_openapi(
        title="Proximity management interface",
        version=version,
        openapi_version=_VERSION,
        description=_ABOUT,
        routes=app.routes,
        servers=[{"url": "/"}],  # the default, which some generators need explicitly
    )
    for path in made["paths"].values():
        for operation in path.values():
            # FastAPI adds its own shape of a validation error; ours is 400.
            operation["responses"].pop("422", None)
    schemas = made["components"]["schemas"] | _request_schemas()
    made["paths"] = {path: _renamed(each) for path, each in made["paths"].items()}
    made["components"] = {
        "schemas": {
            _short(name): _plain(schema) | _example(_short(name))
            for name, schema in schemas.items()
            if "ValidationError" not in name
        },
        "securitySchemes": {
            "key": _header(KEY_HEADER, "The account's e-mail."),
            "token": _header(TOKEN_HEADER, "The session token."),
        },
    }
    made["security"] = [{"key": [], "token": []}]
    return made


def _request_schemas() -> dict[str, Any]:
    """The schemas of request bodies.

    FastAPI does not know them: it would read a body before it has checked the session.
    """
    models = [(model, "validation") for model in REQUESTS]
    _, schemas = models_json_schema(models, ref_template=_REF + "{model}")  # type: ignore[arg-type]
    return dict(schemas["$defs"])


def _example(name: str) -> dict[str, Any]:
    return {"example": EXAMPLES[name]} if name in EXAMPLES else {}


def _header(name: str, description: str) -> dict[str, Any]:
    return {"type": "apiKey", "in": "header", "name": name, "description": description}


def _short(name: str) -> str:
    return name.removesuffix("Answer")


def _renamed(value: Any) -> Any:
    """The value with the document's names of schemas."""
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if isinstance(value, dict):
        return {k: _short(v) if k == "$ref" else _renamed(v) for k, v in value.items()}
    return value


def _plain(schema: Any, *, names: bool = False) -> Any:
    """The schema in the keywords of OpenAPI 3.0; the keys of `names` are no keywords."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if isinstance(schema, float) and schema.is_integer():
        return int(schema)  # a limit of whole numbers, which FastAPI writes as 1.0
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: value if key == "enum" else _plain(value, names=key == "properties")
        for key, value in schema.items()
        if names or key not in _LEFT_OUT
    }
    if names:
        return plain
    if "$ref" in plain:
        plain["$ref"] = _short(plain["$ref"])
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    if "examples" in plain:
        plain["example"] = plain.pop("examples")[0]
    return _nullable(plain)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """A choice between null and another schema, in the form of OpenAPI 3.0."""
    choices = schema.get("anyOf", [])
    if {"type": "null"} not in choices:
        return schema
    others = [choice for choice in choices if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf"} | {"nullable": True}
    if len(others) > 1:
        return {"anyOf": others} | rest
    if "$ref" in others[0]:
        return {"type": "object", "allOf": others} | rest
    if "enum" in others[0]:
        rest["enum"] = [*others[0]["enum"], None]
    only: dict[str, Any] = others[0]
    return only | rest
