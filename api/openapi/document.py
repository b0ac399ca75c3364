"""Puts the document together, in OpenAPI 3.0, which every tool reads."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.openapi.answers import answer_schemas
from api.openapi.requests import request_schemas
from api.permissions import KEY_HEADER, TOKEN_HEADER

_VERSION = "3.0.3"
_ABOUT = """Sessions, profile, devices (CRM), venues, beacons, geofences, campaigns, connector.

Sign in with `POST /v2/auth`, then send the account's e-mail as `x-service-key` and the token as
`x-service-token`. Flags are accepted as true/false, 1/0, also as strings; timestamps as
`2026-11-20T10:00:00+0100` or in RFC 3339. A PUT leaves optional fields that are not given as they
are. Fields that are not listed are ignored.

A text is never null: it is empty where nobody filled it. A number or a time that nobody filled is
null. Only `token_push` and `id_connector` of a device are left out where there is none. In
requests null and an empty text both empty an optional text.
"""
# Of JSON Schema, but not of OpenAPI 3.0.
_UNKNOWN = ("contentMediaType", "examples")


def document(app: FastAPI, version: str) -> dict[str, Any]:
    """The whole document for the application's routes."""
    told = get_openapi(
        title="Proximity management interface",
        version=version,
        openapi_version=_VERSION,
        description=_ABOUT,
        routes=app.routes,
        servers=[{"url": "/"}],  # the default, which some generators want to be told
    )
    for path in told["paths"].values():
        for operation in path.values():
            # FastAPI adds its own shape of a validation error; ours is 400.
            operation["responses"].pop("422", None)
    schemas = {**request_schemas(), **answer_schemas()}
    told["components"] = {
        "schemas": _plain(schemas, names=True),
        "securitySchemes": {
            "key": _header(KEY_HEADER, "The account's e-mail."),
            "token": _header(TOKEN_HEADER, "The session token."),
        },
    }
    told["security"] = [{"key": [], "token": []}]
    return told


def _header(name: str, description: str) -> dict[str, Any]:
    return {"type": "apiKey", "in": "header", "name": name, "description": description}


def _plain(schema: Any, *, names: bool = False) -> Any:
    """The schema in OpenAPI 3.0's words; `names` are keys that are no keywords."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    told = {
        key: value if key in ("example", "enum") else _plain(value, names=key == "properties")
        for key, value in schema.items()
        if names or key not in _UNKNOWN
    }
    if not names and schema.get("examples"):
        told["example"] = schema["examples"][0]
    return told
