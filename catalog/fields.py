"""Reads the fields of requests and catalog files, and collects every fault with its place.

The types of fields are pydantic's; `read_fields` reads an object by a model of them.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo

from rules.parsing import parse_delay

INT32 = 2**31 - 1
INT64 = 2**63 - 1
# The zones of the package tzdata are the same on every host. A host's own directory may hold more
# (localtime, posix/..., right/...), which mean something else on another host.
ZONES = frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split()) - {"Factory"}
# The default of a field that may be absent but not null. An absent field has no value.
ABSENT: Any = None
SECRET = Field(repr=False, json_schema_extra={"writeOnly": True})
# An empty text and null both empty an optional field.
BLANK_IS_NULL = BeforeValidator(lambda value: None if value == "" else value)
# What is wrong with values, by their places, such as `companies[0].venues[1].name`.
Faults = dict[str, str]
# Finds faults in the combination of fields.
Conflicts = Callable[[Mapping[str, Any]], Faults]


class Fields(BaseModel):
    """The fields that a request or a file gives for one kind of record.

    An attribute has the name of its column. Its alias is the name in requests, if that differs;
    further names follow in an AliasChoices. A field with a default may be absent.
    """

    model_config = ConfigDict(extra="ignore")


@functools.cache
def spellings(model: type[Fields]) -> dict[str, list[str]]:
    """Every name that requests may use for a field, by attribute; the main name comes first."""
    return {name: _names(name, field) for name, field in model.model_fields.items()}


def _names(attribute: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [str(alias or attribute)]


def read_fields(
    model: type[Fields],
    given: Mapping[str, Any],
    *,
    place: str = "",
    faults: Faults,
) -> dict[str, Any]:
    """The accepted values of the given fields, by attribute.

    Notes each bad value, each field that is given under two names with different values, and each
    required field that is not given. Unknown names are ignored: see `note_unknown`.
    """
    values: dict[str, Any] = {}
    for attribute, names in spellings(model).items():
        field = model.model_fields[attribute]
        used = [name for name in names if name in given]
        if not used and field.is_required():
            faults[joined(place, names[0])] = "required, and not given"
        for name in used:
            try:
                value = _adapters(model)[attribute].validate_python(given[name])
            except ValidationError as error:
                faults[joined(place, name)] = _refusal(field, error)
                continue
            if values.setdefault(attribute, value) != value:
                message = f"given twice, also as {name}, with another value"
                faults[joined(place, names[0])] = message
    return values


def note_unknown(known: Sequence[str], given: Iterable[str], *, place: str, faults: Faults) -> None:
    """Note each unknown name, because a misspelt field would be ignored in silence."""
    for name in given:
        if name not in known:
            faults[joined(place, name)] = f"unknown field; accepted: {', '.join(known)}"


def joined(place: str, name: str) -> str:
    """The place of a field within an object."""
    return ".".join(filter(None, (place, name)))


@functools.cache
def _adapters(model: type[Fields]) -> dict[str, TypeAdapter[Any]]:
    return {
        name: TypeAdapter(field.rebuild_annotation()) for name, field in model.model_fields.items()
    }


def _refusal(field: FieldInfo, error: ValidationError) -> str:
    """What is wrong, in words that never quote the value, which may be a secret."""
    if field.description:
        return f"accepted: {field.description}"
    first = error.errors(include_url=False, include_input=False)[0]
    where = "".join(f"{part}: " for part in first["loc"])
    return where + str(first.get("ctx", {}).get("error", first["msg"]))


def accepts(is_good: Callable[[Any], object], words: str) -> AfterValidator:
    """Refuses every value that is not good; `words` say what is accepted."""

    def check(value: Any) -> Any:
        if not is_good(value):
            raise ValueError(f"accepted: {words}")
        return value

    return AfterValidator(check)


# Control characters, and characters that change the direction of the text or end the line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
FILLED = accepts(str.strip, "a string that is not blank")
# Blanks at the ends of a text count and are kept.
StoredText = Annotated[
    str, accepts(lambda text: not _UNSTORABLE.search(text), "a string without NUL characters")
]
Line = Annotated[  # for tables, terminals and logs
    str, accepts(lambda text: not _CONTROL.search(text), "a string without control characters")
]
Name = Annotated[Line, FILLED, Field(max_length=255)]
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


def _has_utc(value: datetime) -> bool:
    with suppress(OverflowError):
        return bool(value.astimezone(UTC))
    return False


Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_written),
    accepts(_has_utc, "an instant of the years 1 to 9999"),
]


# HH:MM, kept as minutes from midnight; 24:00 only as an end.
StartTime = Annotated[str, Field(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$")]
EndTime = Annotated[str, Field(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$")]
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
        description="a colour as #ff8800, orange or rgb(255, 136, 0)",
    ),
]
