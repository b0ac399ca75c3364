"""The fields that requests and catalog files give for each kind of record.

`parameters` and `secret` of a connector are in plain text here: encrypt to store. Weekdays and
hours of a campaign may be absent from a catalog file; the interface requires more (api.requests).
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, Field, WithJsonSchema

from catalog.fields import (
    ABSENT,
    BLANK_IS_NULL,
    INT32,
    INT64,
    SECRET,
    ZONES,
    FieldError,
    Fields,
    boolean,
    cache,
    choice,
    colour,
    email,
    integer,
    line,
    link,
    number,
    reader,
    text,
    time_of_day,
    time_zone,
    timestamp,
    uuid,
    web_address,
)
from catalog.models import EVERY_DAY, WEEKDAYS, offset_minutes
from connectors.request import is_reserved
from rules.parsing import MINUTE, MONTH, parse_delay

Name = Annotated[str, line()]
Flag = Annotated[bool, boolean]
Meters = Annotated[int, integer(0, INT32)]
Unsigned16 = Annotated[int, integer(0, 65535)]
Position = Annotated[int, integer(-INT32 - 1, INT32)]
Colour = Annotated[Annotated[str, colour] | None, BLANK_IS_NULL]
_OPTIONAL_ZONE = WithJsonSchema({"type": "string", "enum": sorted({*ZONES, ""})})
TimeZone = Annotated[Annotated[str, time_zone, _OPTIONAL_ZONE] | None, BLANK_IS_NULL]
VisitSilence = Annotated[Annotated[int, integer(5, 3600)] | None, BLANK_IS_NULL]
Uuid = Annotated[str, uuid]
_name = line()
_value = text(1024)


class Triple(NamedTuple):
    """uuid, major and minor: they name one beacon on the whole platform. `uuid` is canonical."""

    uuid: str
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.uuid}:{self.major}:{self.minor}"


@reader()
def names(value: Any) -> list[str]:
    """A list of names, or of objects that have one; each name once, in order."""
    try:
        if not isinstance(value, list):
            raise TypeError  # noqa: TRY301  # a string is a sequence of names, too
        listed = [_name(item["name"] if isinstance(item, dict) else item) for item in value]
    except (KeyError, TypeError, FieldError):
        raise FieldError('accepted: a list of objects {"name": string}, or of names') from None
    return list(dict.fromkeys(listed))


class VenueInput(Fields):
    """A venue."""

    name: Name
    address: Annotated[str, text(None, shortest=0)]
    active: Flag
    width: Meters | None = Field(None, validation_alias=AliasChoices("width", "with"))
    height: Meters | None = None
    image: Annotated[Annotated[str, line(None, shortest=0)] | None, BLANK_IS_NULL] = Field(
        None, validation_alias=AliasChoices("image", "map")
    )
    time_zone: TimeZone = None
    visit_silence: VisitSilence = None


class TripleFields(Fields):
    """The three fields that name a beacon."""

    uuid: Uuid
    major: Unsigned16
    minor: Unsigned16


class BeaconFields(TripleFields):
    """A beacon without its tags."""

    name: Name
    active: Flag
    proximity: Annotated[str, choice("immediate", "near", "far")]
    x: Position | None = None
    y: Position | None = None
    color: Colour = None


class GeofenceFields(Fields):
    """A geofence without its tags."""

    name: Name
    longitude: Annotated[float, number(-180, 180)]
    latitude: Annotated[float, number(-90, 90)]
    radius: Annotated[int, integer(1, INT32)]
    active: Flag


_LONGEST_VALUE = 1024


@reader(type="string", minLength=1, maxLength=_LONGEST_VALUE)
def tag_value(value: Any) -> str:
    """What an NFC tag or QR code holds."""
    found = _value(value)
    if len(found.encode()) > _LONGEST_VALUE:
        raise FieldError(f"accepted: a string of at most {_LONGEST_VALUE} bytes")
    return str(found)


class ScanTagFields(Fields):
    """An NFC tag or QR code without its tags. `value` is what devices read from it."""

    name: Name
    value: Annotated[str, tag_value]
    active: Flag


Text = Annotated[str, text(None)]
Source = Annotated[Annotated[str, text(None, shortest=0)] | None, BLANK_IS_NULL]
CacheDelay = Annotated[str, cache]
Instant = Annotated[datetime, timestamp]
StartMinute = Annotated[int, time_of_day(end=False)]
EndMinute = Annotated[int, time_of_day(end=True)]
REFERENCES = ("beacons", "geofencings", "nfcs", "qrcodes", "tags")


class CampaignFields(Fields):
    """A campaign without its references to other records."""

    name: Name
    hash: Annotated[Annotated[str, line(255, shortest=0)] | None, BLANK_IS_NULL] = None
    push: Text
    title: Text
    format: Annotated[str, choice("template", "url", "html", "connector")]
    template: Source = None
    url: Annotated[Annotated[str, link] | None, BLANK_IS_NULL] = None
    html: Source = None
    background: Colour = None
    color: Colour = None
    cache: CacheDelay
    start: Instant
    end: Instant
    active: Flag
    start_minute: StartMinute = Field(ABSENT, validation_alias="start_time")
    end_minute: EndMinute = Field(ABSENT, validation_alias="end_time")
    monday: Flag = ABSENT
    tuesday: Flag = Field(ABSENT, validation_alias=AliasChoices("tuesday", "thuesday"))
    wednesday: Flag = ABSENT
    thursday: Flag = ABSENT
    friday: Flag = ABSENT
    saturday: Flag = ABSENT
    sunday: Flag = ABSENT
    on: Annotated[str, choice("detection", "enter", "dwell", "exit")] = ABSENT
    dwell_minutes: Annotated[Annotated[int, integer(1, 1440)] | None, BLANK_IS_NULL] = None
    priority: Annotated[int, integer(0, 9)] = ABSENT
    ignores_caps: Flag = ABSENT
    ignores_quiet_hours: Flag = ABSENT


def campaign_columns(values: Mapping[str, Any], *, weekdays: int = EVERY_DAY) -> dict[str, Any]:
    """The model's columns for values that were read.

    `weekdays` is the mask for the weekdays that are not given. REFERENCES are left out. A campaign
    that becomes `on` another moment than dwell loses its dwell_minutes.
    """
    columns = {key: value for key, value in values.items() if key not in (*WEEKDAYS, *REFERENCES)}
    for name in ("start", "end"):
        if name in columns:
            written: datetime = columns.pop(name)
            columns[f"{name}_at"], columns[f"{name}_offset"] = written, offset_minutes(written)
    if "cache" in columns:
        columns["delay"] = parse_delay(columns["cache"])
    for bit, day in enumerate(WEEKDAYS):
        if day in values:
            weekdays = weekdays | 1 << bit if values[day] else weekdays & ~(1 << bit)
    if values.get("on", "dwell") != "dwell":
        columns["dwell_minutes"] = None
    return columns | {"weekdays": weekdays}


def campaign_conflicts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Faults in the combination of fields, stored ones included, as (field, message) pairs."""
    conflicts = []
    content = values.get("format")
    if content in ("template", "url", "html") and not (values.get(content) or "").strip():
        conflicts.append((content, f"required with format {content}, and empty or not given"))
    start, end = values.get("start"), values.get("end")
    if start is not None and end is not None and _last(end) <= start:
        conflicts.append(("end", "accepted: an instant after start"))
    dwells, minutes = values.get("on") == "dwell", values.get("dwell_minutes")
    if dwells and minutes is None:
        conflicts.append(("dwell_minutes", "required with on dwell, and empty or not given"))
    if minutes is not None and not dwells:
        conflicts.append(("dwell_minutes", "accepted with on dwell alone"))
    return conflicts


def _last(end: datetime) -> datetime:
    at_midnight = (end.hour, end.minute, end.second) == (0, 0, 0)
    try:
        return end + timedelta(days=1) if at_midnight else end
    except OverflowError:
        return end


AREAS = (
    *("profile", "campaign", "device", "analytic", "region", "beacon", "realtime"),
    *("nfc", "qrcode", "tag", "connector", "fidelity", "form", "crm"),
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


Email = Annotated[str, email]
Permission = Annotated[dict[str, int], permission]


_MOST_CAPS = 10
_CAPS = f"a list of at most {_MOST_CAPS} objects"
_PER = "a delay as that of a campaign from 1 minute to 30 days"
_cap_max = integer(1, 1000)


@reader(
    type="array",
    maxItems=_MOST_CAPS,
    items={
        "type": "object",
        "properties": {
            "max": _cap_max.schema,
            "per": {"type": "string", "pattern": "^(?:[1-9] |[12][0-9] |30 )?(?:minute|day)s?$"},
        },
        "required": ["max", "per"],
        "additionalProperties": False,
    },
    examples=[[{"max": 3, "per": "day"}]],
)
def caps(value: Any) -> list[dict[str, Any]]:
    """How many notifications a device may receive within a time; stored as written."""
    try:
        read = [{"max": _cap_max(each["max"]), "per": cache(each["per"])} for each in value]
        good = all(each.keys() == {"max", "per"} for each in value)
        good &= all(MINUTE <= parse_delay(each["per"]) <= MONTH for each in read)
    except (KeyError, TypeError, FieldError):
        good = False
    if not good or not isinstance(value, list) or len(value) > _MOST_CAPS:
        raise FieldError(f'accepted: {_CAPS} {{"max": 1 to 1000, "per": {_PER}}}')
    return read


_quiet_start, _quiet_end = time_of_day(end=False), time_of_day(end=True)


@reader(
    type="object",
    properties={
        "start": _quiet_start.schema,
        "end": _quiet_end.schema,
        "weekdays": {
            "type": "array",
            "items": {"type": "string", "enum": WEEKDAYS},
            "minItems": 1,
        },
    },
    required=["start", "end"],
    additionalProperties=False,
    examples=[{"start": "22:00", "end": "08:00"}],
)
def quiet_hours(value: Any) -> dict[str, Any]:
    """Hours without notifications; stored as written, the weekdays in order."""
    try:
        _quiet_start(value["start"])
        _quiet_end(value["end"])
        days = value.get("weekdays", WEEKDAYS)
        good = value.keys() <= {"start", "end", "weekdays"} and isinstance(days, list | tuple)
        good = good and bool(days) and all(day in WEEKDAYS for day in days)
    except (AttributeError, KeyError, TypeError, FieldError):
        good = False
    if not good:
        raise FieldError(
            'accepted: an object {"start": "22:00", "end": "08:00"}, '
            'also with "weekdays": a list of monday to sunday'
        )
    given = {"weekdays": [day for day in WEEKDAYS if day in days]} if "weekdays" in value else {}
    return {"start": value["start"], "end": value["end"], **given}


Caps = Annotated[list[dict[str, Any]], caps]
Quiet = Annotated[Annotated[dict[str, Any], quiet_hours] | None, BLANK_IS_NULL]


class CompanyRulesInput(Fields):
    """What a company sets for all of its campaigns."""

    time_zone: TimeZone = None
    caps: Caps = ABSENT
    quiet_hours: Quiet = None
    presence: Flag = ABSENT
    visit_silence: VisitSilence = None


class CompanyFields(CompanyRulesInput):
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
    time_zone: TimeZone = None


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_LONGEST = 16_384
_ACCEPTED = (
    'accepted: a JSON list, also encoded as a string, of objects {"key": string, "value": string}'
)


_WRITTEN = r'\{"key": "[0-9A-Za-z-]{1,40}", "value": "[ !#-\[\]-~]{0,80}"\}'


@reader(
    type="string",
    contentMediaType="application/json",
    pattern=rf"^\[(?:{_WRITTEN}(?:, {_WRITTEN}){{0,9}})?\]$",
    examples=['[{"key": "token", "value": "abc"}]'],
)
def parameters(value: Any) -> str:
    """The JSON text of the list. A list that is given as text is stored as written."""
    try:
        listed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise FieldError(_ACCEPTED) from None
    if not isinstance(listed, list) or not all(_is_parameter(item) for item in listed):
        raise FieldError(_ACCEPTED)
    if not all(item["key"].isprintable() and item["value"].isprintable() for item in listed):
        raise FieldError("accepted: keys and values without control characters")
    written = value if isinstance(value, str) else json.dumps(listed, ensure_ascii=False)
    if len(written) > _LONGEST:
        raise FieldError(f"accepted: at most {_LONGEST} characters")
    return written


def _is_parameter(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.keys() == {"key", "value"}
        and all(isinstance(part, str) for part in item.values())
        and item["key"] != ""
    )


Parameters = Annotated[str, parameters, SECRET]


class ConnectorInput(Fields):
    """A connector."""

    name: Annotated[str, line()]
    url: Annotated[str, web_address]
    method: Annotated[str, choice("GET", "POST")]
    auth: Annotated[str, choice("header", "get")]
    parameters: Parameters
    secret: Annotated[Annotated[str, text(512)] | None, SECRET] = None


def connector_conflicts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Faults in the combination of fields, as (field, message) pairs."""
    if "auth" not in values or "parameters" not in values:
        return []
    keys = [item["key"] for item in json.loads(values["parameters"])]
    if values["auth"] == "header" and not all(_HEADER_NAME.fullmatch(key) for key in keys):
        return [("parameters", "accepted with auth header: keys that are names of HTTP headers")]
    method, place = values.get("method", ""), values["auth"]
    own = [key[:64] for key in keys if is_reserved(key, method=method, place=place)]
    if not own:
        return []
    names = ", ".join(own[:8])
    return [("parameters", f"accepted: keys other than {names}, which the request itself sets")]
