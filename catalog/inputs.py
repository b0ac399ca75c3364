"""The fields that requests and catalog files give for each kind of record.

`parameters` and `secret` of a connector are in plain text here: encrypt to store. Weekdays and
hours of a campaign may be absent from a catalog file; the interface requires more (api.campaigns).
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import orjson
from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    WrapValidator,
)

from catalog.fields import ABSENT, ZONES, Faults, Fields
from catalog.models import EVERY_DAY, WEEKDAYS, Weekday, offset_minutes
from connectors.request import is_reserved
from rules.parsing import MINUTE, MONTH, parse_delay

INT32 = 2**31 - 1
INT64 = 2**63 - 1


def is_id(text: str) -> bool:
    """Whether a text can be an id; its digits fit every database's integers."""
    return text.isascii() and text.isdigit() and len(text) <= 18


SECRET = Field(repr=False, json_schema_extra={"writeOnly": True})
# An empty text and null both empty an optional field.
BLANK_IS_NULL = BeforeValidator(lambda value: None if value == "" else value)
NULL_IS_BLANK = BeforeValidator(lambda value: "" if value is None else value)


def accepts(is_good: Callable[[Any], object], words: str, when: Any = AfterValidator) -> Any:
    """Refuses every value that is not good; `words` say what is accepted."""

    def check(value: Any) -> Any:
        if not is_good(value):
            raise ValueError(f"accepted: {words}")
        return value

    return when(check)


# For the numbers of requests: pydantic takes true for 1.
NUMBER = accepts(lambda value: not isinstance(value, bool), "a number", BeforeValidator)
# Control characters, and characters that change the direction of the text or end the line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
FILLED = accepts(str.strip, "a string that is not blank")
STORABLE = accepts(lambda text: not _UNSTORABLE.search(text), "a string without NUL characters")
_ON_ONE_LINE = accepts(
    lambda text: not _CONTROL.search(text), "a string without control characters"
)
# Blanks at the ends of a text count and are kept.
StoredText = Annotated[str, STORABLE]
Line = Annotated[str, _ON_ONE_LINE]  # for tables, terminals and logs
# A length stands before what else is checked: pydantic then counts characters, not items.
ShortLine = Annotated[str, Field(max_length=255), _ON_ONE_LINE]
Name = Annotated[ShortLine, FILLED]
# For the words of a Literal, given in any case.
LOWER = BeforeValidator(lambda word: word.strip().lower() if isinstance(word, str) else word)
UPPER = BeforeValidator(lambda word: word.strip().upper() if isinstance(word, str) else word)
Uuid = Annotated[UUID, AfterValidator(str)]  # kept in lower case with dashes


def _flag(value: Any) -> Any:
    if str(value).lower() not in ("true", "false", "1", "0"):  # pydantic takes more words
        raise ValueError("accepted: true, false, 1, 0, also as strings")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]


def _written(value: Any) -> Any:
    # pydantic takes numbers too, for seconds or milliseconds.
    if not isinstance(value, str) or not re.match(r"[0-9]{4}-", value):
        raise ValueError("accepted: a timestamp as 2026-11-20T10:00:00+0100, or in RFC 3339")
    return value


Instant = Annotated[
    AwareDatetime,
    Field(ge=datetime.min.replace(tzinfo=UTC), le=datetime.max.replace(tzinfo=UTC)),
    BeforeValidator(_written),
]


# HH:MM, kept as minutes from midnight; 24:00 only as an end.
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]"
StartTime = Annotated[
    str,
    accepts(re.compile(_TIME).fullmatch, "a time of day as 09:30"),
    Field(json_schema_extra={"pattern": f"^{_TIME}$"}),
]
EndTime = Annotated[
    str,
    accepts(re.compile(f"{_TIME}|24:00").fullmatch, "a time of day as 09:30, or 24:00"),
    Field(json_schema_extra={"pattern": f"^({_TIME}|24:00)$"}),
]
MINUTES = AfterValidator(lambda time: int(time[:2]) * 60 + int(time[3:]))


def _delay(value: str) -> str:
    parse_delay(value)
    return value


CacheDelay = Annotated[str, AfterValidator(_delay), Field(examples=["day", "15 minutes", "PT15M"])]
_ZONE = accepts(ZONES.__contains__, "the IANA name of a time zone, such as Europe/Paris")
TimeZone = Annotated[Annotated[str, _ZONE] | None, BLANK_IS_NULL]
Email = Annotated[
    Line,
    StringConstraints(
        strip_whitespace=True, to_lower=True, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$"
    ),
]


def _is_web_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # it cannot be split into the parts of a URL
        return False
    return bool(is_web) and parts.username is None and value.isprintable() and " " not in value


WebAddress = Annotated[
    str,
    Field(max_length=2048),
    accepts(
        _is_web_address,
        "an address http:// or https:// without a user and password (those belong in parameters)",
    ),
]
_SCRIPTS = ("javascript:", "vbscript:", "data:", "file:")


def _is_link(value: str) -> bool:
    has_scheme = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", value) and value.isprintable()
    return not value or bool(has_scheme and not value.lower().startswith(_SCRIPTS))


# A link that a phone can open, to a page or into an application, or nothing.
Link = Annotated[
    str,
    Field(max_length=8192),
    accepts(
        _is_link,
        "an address with its scheme, as https://www.example.com/offer or app:offer, "
        f"without blanks; none of {', '.join(_SCRIPTS)}",
    ),
]
# A colour in CSS's forms (the # may be missing), or nothing; stored as written.
Colour = Annotated[
    str,
    Field(
        max_length=64,
        pattern=r"^(#?([0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})|[A-Za-z]{3,24}"
        r"|(rgb|hsl)a?\([0-9., %/+-]{5,40}\))?$",
    ),
]

Meters = Annotated[int, NUMBER, Field(ge=0, le=INT32)]
Unsigned16 = Annotated[int, NUMBER, Field(ge=0, le=65535)]
Position = Annotated[int, NUMBER, Field(ge=-INT32 - 1, le=INT32)]
OptionalColour = Annotated[
    Colour | None,
    BLANK_IS_NULL,
    Field(description="a colour as #ff8800, orange or rgb(255, 136, 0)"),
]
VisitSilence = Annotated[Annotated[int, NUMBER, Field(ge=5, le=3600)] | None, BLANK_IS_NULL]
DwellMinutes = Annotated[Annotated[int, NUMBER, Field(ge=1, le=1440)] | None, BLANK_IS_NULL]
_AS_DICT = AfterValidator(lambda model: model.model_dump(exclude_unset=True))


class Triple(NamedTuple):
    """uuid, major and minor: they name one beacon on the whole platform. `uuid` is canonical."""

    uuid: str
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.uuid}:{self.major}:{self.minor}"


class VenueInput(Fields):
    """A venue."""

    name: Name
    address: StoredText
    active: Flag
    width: Meters | None = Field(
        None, validation_alias=AliasChoices("width", "with"), title="Width, also as `with`"
    )
    height: Meters | None = None
    image: Annotated[Line | None, BLANK_IS_NULL] = Field(
        None, validation_alias=AliasChoices("image", "map"), title="Image, also as `map`"
    )
    time_zone: TimeZone = None
    visit_silence: VisitSilence = None


class TagByName(Fields):
    """A tag of the company by its name; a new name creates a tag."""

    name: Name


ByName = Annotated[TagByName, AfterValidator(lambda tag: tag.name)]


class TripleFields(Fields):
    """The three fields that name a beacon."""

    uuid: Uuid
    major: Unsigned16
    minor: Unsigned16


class BeaconFields(TripleFields):
    """A beacon without its tags."""

    name: Name
    active: Flag
    proximity: Annotated[Literal["immediate", "near", "far"], LOWER]
    x: Position | None = None
    y: Position | None = None
    color: OptionalColour = None


class GeofenceFields(Fields):
    """A geofence without its tags."""

    name: Name
    longitude: Annotated[float, NUMBER, Field(ge=-180, le=180, allow_inf_nan=False)]
    latitude: Annotated[float, NUMBER, Field(ge=-90, le=90, allow_inf_nan=False)]
    radius: Annotated[int, NUMBER, Field(ge=1, le=INT32)]
    active: Flag


class ScanTagFields(Fields):
    """An NFC tag or QR code without its tags. `value` is what devices read from it."""

    name: Name
    value: Annotated[
        str,
        Field(max_length=1024),
        STORABLE,
        FILLED,
        accepts(lambda text: len(text.encode()) <= 1024, "a string of at most 1024 bytes"),
    ]
    active: Flag


Source = Annotated[StoredText | None, BLANK_IS_NULL]
REFERENCES = ("beacons", "geofencings", "nfcs", "qrcodes", "tags")


class CampaignFields(Fields):
    """A campaign without its references to other records."""

    name: Name
    hash: Annotated[ShortLine | None, BLANK_IS_NULL] = None
    push: Annotated[StoredText, FILLED]
    title: Annotated[StoredText, FILLED]
    format: Annotated[Literal["template", "url", "html", "connector"], LOWER]
    template: Source = None
    url: Annotated[Link | None, BLANK_IS_NULL] = None
    html: Source = None
    background: OptionalColour = None
    color: OptionalColour = None
    cache: CacheDelay
    start: Instant
    end: Instant
    active: Flag
    start_minute: Annotated[StartTime, MINUTES] = Field(ABSENT, validation_alias="start_time")
    end_minute: Annotated[EndTime, MINUTES] = Field(ABSENT, validation_alias="end_time")
    monday: Flag = ABSENT
    tuesday: Flag = Field(
        ABSENT,
        validation_alias=AliasChoices("tuesday", "thuesday"),
        title="Tuesday, also as `thuesday`",
    )
    wednesday: Flag = ABSENT
    thursday: Flag = ABSENT
    friday: Flag = ABSENT
    saturday: Flag = ABSENT
    sunday: Flag = ABSENT
    on: Annotated[Literal["detection", "enter", "dwell", "exit"], LOWER] = ABSENT
    dwell_minutes: DwellMinutes = None
    priority: Annotated[int, NUMBER, Field(ge=0, le=9)] = ABSENT
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


def campaign_conflicts(values: Mapping[str, Any]) -> Faults:
    """Faults in the combination of fields, stored ones included."""
    faults = {}
    content = values.get("format")
    if content in ("template", "url", "html") and not (values.get(content) or "").strip():
        faults[content] = f"required with format {content}, and empty or not given"
    start, end = values.get("start"), values.get("end")
    if start is not None and end is not None and _last(end) <= start:
        faults["end"] = "accepted: an instant after start"
    dwells, minutes = values.get("on") == "dwell", values.get("dwell_minutes")
    if dwells and minutes is None:
        faults["dwell_minutes"] = "required with on dwell, and empty or not given"
    if minutes is not None and not dwells:
        faults["dwell_minutes"] = "accepted with on dwell alone"
    return faults


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


# Levels by area. A single level is for every area.
Permission = Annotated[
    dict[str, Annotated[int, NUMBER, Field(ge=NOTHING, le=WRITE)]],
    BeforeValidator(lambda each: dict.fromkeys(AREAS, each) if isinstance(each, int) else each),
    accepts(
        lambda levels: levels.keys() <= set(AREAS),
        f"a level, or an object of levels by area: {', '.join(AREAS)}",
    ),
]


class CapInput(BaseModel, extra="forbid"):
    """How many notifications a device may receive within a time."""

    max: Annotated[int, NUMBER, Field(ge=1, le=1000)]
    per: Annotated[
        CacheDelay,
        accepts(
            lambda delay: MINUTE <= parse_delay(delay) <= MONTH, "a delay from 1 minute to 30 days"
        ),
    ]


class QuietHoursInput(BaseModel, extra="forbid"):
    """Hours without notifications; stored as written, the weekdays in order."""

    start: StartTime
    end: EndTime
    weekdays: Annotated[
        list[Weekday],
        Field(min_length=1),
        AfterValidator(lambda days: [day for day in WEEKDAYS if day in days]),
    ] = ABSENT


Caps = Annotated[
    list[Annotated[CapInput, _AS_DICT]],
    Field(max_length=10, examples=[[{"max": 3, "per": "day"}]]),
]
Quiet = Annotated[Annotated[QuietHoursInput, _AS_DICT] | None, BLANK_IS_NULL]


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
    image: Line | None = None
    description: StoredText | None = None
    active: Flag = ABSENT


class AccountFields(Fields):
    """An account of a company."""

    email: Email
    # No least length: a catalog file may hold passwords that were chosen under other rules.
    password: Annotated[str, Field(min_length=1, max_length=1024), STORABLE, SECRET]
    name: Name | None = None
    fonction: Name | None = None
    active: Flag = ABSENT
    permission: Permission = ABSENT


class ApplicationInput(Fields):
    """A mobile application of a company, without its key."""

    name: Name
    type: Annotated[str, Field(max_length=64), _ON_ONE_LINE, FILLED]
    api_id: Annotated[ShortLine, NULL_IS_BLANK] = ABSENT
    active: Flag = ABSENT
    expire_on: Instant | None = None


class ApplicationFields(ApplicationInput):
    """A mobile application of a company, with its key."""

    api_key: Annotated[Name, SECRET]


class DeviceFields(Fields):
    """A phone of a company's customer."""

    udid: Name
    test: Flag = ABSENT
    id_connector: Annotated[int, NUMBER, Field(ge=-INT64 - 1, le=INT64)] | None = None
    token_push: Line | None = None
    name: Name | None = None
    version: Name | None = None
    model: Name | None = None
    time_zone: TimeZone = None


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


class Parameter(BaseModel, extra="forbid"):
    """What authenticates the calls: a header or a part of the query string."""

    key: Annotated[Line, Field(min_length=1)]
    value: Line


def _as_text(value: Any, read: Callable[[Any], list[Parameter]]) -> str:
    """The JSON text of the list. A list that is given as text is stored as written."""
    listed = orjson.loads(value) if isinstance(value, str) else value
    read(listed)
    written = value if isinstance(value, str) else json.dumps(listed, ensure_ascii=False)
    if len(written) > 16_384:
        raise ValueError("accepted: at most 16384 characters")
    return written


Parameters = Annotated[
    list[Parameter],
    WrapValidator(_as_text),
    SECRET,
    WithJsonSchema({"type": "string", "examples": ['[{"key": "token", "value": "abc"}]']}),
    Field(
        description='a JSON list, also encoded as a string, of objects {"key": string, '
        '"value": string}, without control characters'
    ),
]


class ConnectorInput(Fields):
    """A connector."""

    name: Name
    url: WebAddress
    method: Annotated[Literal["GET", "POST"], UPPER]
    auth: Annotated[Literal["header", "get"], LOWER]
    parameters: Parameters
    secret: Annotated[Annotated[str, Field(max_length=512), STORABLE, FILLED] | None, SECRET] = None


def connector_conflicts(values: Mapping[str, Any]) -> Faults:
    """Faults in the combination of fields."""
    if "auth" not in values or "parameters" not in values:
        return {}
    keys = [item["key"] for item in json.loads(values["parameters"])]
    if values["auth"] == "header" and not all(_HEADER_NAME.fullmatch(key) for key in keys):
        return {"parameters": "accepted with auth header: keys that are names of HTTP headers"}
    method, place = values.get("method", ""), values["auth"]
    own = [key[:64] for key in keys if is_reserved(key, method=method, place=place)]
    if not own:
        return {}
    names = ", ".join(own[:8])
    return {"parameters": f"accepted: keys other than {names}, which the request itself sets"}
