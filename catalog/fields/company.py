"""The fields of a company and of its accounts, applications and devices."""

from datetime import datetime
from typing import Annotated, Any

from catalog.fields.base import ABSENT, SECRET, Fields
from catalog.fields.reader import FieldError, reader
from catalog.fields.texts import email, line, text
from catalog.fields.values import INT64, boolean, integer, timestamp

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
    """Levels by area: 0 nothing, 1 read, 2 read and write. A single level is for every area."""
    level = integer(NOTHING, WRITE)
    if isinstance(value, int):
        value = dict.fromkeys(AREAS, value)
    if not isinstance(value, dict) or not set(value) <= set(AREAS):
        areas = ", ".join(AREAS)
        raise FieldError(f"accepted: a level 0, 1 or 2, or an object of levels by area: {areas}")
    return {area: level(given) for area, given in value.items()}


Flag = Annotated[bool, boolean]
Name = Annotated[str, line()]
Email = Annotated[str, email]
Permission = Annotated[dict[str, int], permission]


class CompanyFields(Fields):
    """A company."""

    name: Name
    image: Annotated[str, line(None)] | None = None
    description: Annotated[str, text(None)] | None = None
    active: Flag = ABSENT


class AccountFields(Fields):
    """An account of a company."""

    email: Email
    # No least length: a catalog file may hold passwords that were chosen under other rules.
    password: Annotated[str, text(1024), SECRET]
    name: Name | None = None
    fonction: Name | None = None
    active: Flag = ABSENT
    permission: Permission = ABSENT


class ApplicationInput(Fields):
    """A mobile application of a company, without its key."""

    name: Name
    type: Annotated[str, line(64)]
    api_id: Annotated[str, line(shortest=0)] = ABSENT
    active: Flag = ABSENT
    expire_on: Annotated[datetime, timestamp] | None = None


class ApplicationFields(ApplicationInput):
    """A mobile application of a company, with its key."""

    api_key: Annotated[str, line(), SECRET]


class DeviceFields(Fields):
    """A phone of a company's customer."""

    udid: Name
    test: Flag = ABSENT
    id_connector: Annotated[int, integer(-INT64 - 1, INT64)] | None = None
    token_push: Annotated[str, line(None)] | None = None
    name: Name | None = None
    version: Name | None = None
    model: Name | None = None
