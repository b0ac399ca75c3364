"""The fields of what a company has besides places: itself, accounts, applications, devices."""

from typing import Any

from catalog.fields.reader import FieldError, reader
from catalog.fields.reading import Field
from catalog.fields.values import INT64, boolean, email, integer, line, text, timestamp

AREAS = (
    "profile",
    "campaign",
    "device",
    "analytic",
    "region",
    "beacon",
    "realtime",
    "nfc",
    "qrcode",
    "tag",
    "connector",
    "fidelity",
    "form",
    "crm",
)
NOTHING, READ, WRITE = 0, 1, 2
ALL_PERMISSIONS = dict.fromkeys(AREAS, WRITE)


@reader()
def permission(value: Any) -> dict[str, int]:
    """Levels by area: 0 nothing, 1 read, 2 read and write. One level stands for every area."""
    level = integer(NOTHING, WRITE)
    if isinstance(value, int):
        value = dict.fromkeys(AREAS, value)
    if not isinstance(value, dict) or not set(value) <= set(AREAS):
        areas = ", ".join(AREAS)
        raise FieldError(f"accepted: a level 0, 1 or 2, or an object of levels by area: {areas}")
    return {area: level(given) for area, given in value.items()}


COMPANY = (
    Field(name="name", read=line(), required=True),
    Field(name="image", read=line(None), nullable=True),
    Field(name="description", read=text(None), nullable=True),
    Field(name="active", read=boolean),
)
ACCOUNT = (
    Field(name="email", read=email, required=True),
    # A catalog may bring accounts whose passwords were chosen under other rules.
    Field(name="password", read=text(1024), required=True, secret=True),
    Field(name="name", read=line(), nullable=True),
    Field(name="fonction", read=line(), nullable=True),
    Field(name="active", read=boolean),
    Field(name="permission", read=permission),
)
APPLICATION = (
    Field(name="name", read=line(), required=True),
    Field(name="type", read=line(64), required=True),
    Field(name="api_key", read=line(), required=True, secret=True),
    Field(name="api_id", read=line(shortest=0)),
    Field(name="active", read=boolean),
    Field(name="expire_on", read=timestamp, nullable=True),
)
DEVICE = (
    Field(name="udid", read=line(), required=True),
    Field(name="test", read=boolean),
    Field(name="id_connector", read=integer(-INT64 - 1, INT64), nullable=True),
    Field(name="token_push", read=line(None), nullable=True),
    Field(name="name", read=line(), nullable=True),
    Field(name="version", read=line(), nullable=True),
    Field(name="model", read=line(), nullable=True),
)
