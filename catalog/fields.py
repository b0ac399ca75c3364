"""Reads the fields of requests and catalog files, and collects every fault with its place.

A `ValueReader` converts a JSON value to its stored form or refuses it, and has a JSON Schema. It
annotates the fields of pydantic models; `read_fields` reads an object by such a model.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from rules.parsing import parse_delay

Schema = dict[str, Any]

INT32 = 2**31 - 1
INT64 = 2**63 - 1
# The zones of the package tzdata are the same on every host. A host's own directory may hold more
# (localtime, posix/..., right/...), which mean something else on another host.
ZONES = frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split()) - {"Factory"}
# The default of a field that may be absent but not null. An absent field has no value.
ABSENT: Any = None
# The value of a secret field is never quoted, neither in a message nor in the model's repr.
SECRET = Field(repr=False, json_schema_extra={"writeOnly": True})
# An empty text and null both empty an optional field.
BLANK_IS_NULL = BeforeValidator(lambda value: None if value == "" else value)
# Finds faults in the combination of fields, as (field, message) pairs.
Conflicts = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]]

_LONGEST_QUOTE = 60
_MISSING = "required, and not given"


class FieldError(ValueError):
    """A value is refused; the message says what is accepted."""


@dataclass(frozen=True, eq=False)
class ValueReader:
    """Converts a value to its stored form, or raises FieldError. Annotates the fields of models.

    The error's message says what is accepted and never quotes the value, which may be a secret.
    Every value that `schema` accepts is accepted by `read` too, so that programs can rely on it.
    """

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __call__(self, value: Any) -> Any:
        """The stored form of the value. Raises FieldError."""
        return self.read(value)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        """For pydantic: validate with `read`."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _core: Any, _handler: Any) -> Schema:
        """For pydantic: describe with `schema`."""
        return dict(self.schema)


def reader(**schema: Any) -> Callable[[Callable[[Any], Any]], ValueReader]:
    """A decorator that makes a function a ValueReader with this schema."""
    return lambda read: ValueReader(read, schema)


@dataclass(frozen=True)
class FieldFault:
    """A message about a value, and its place in the form `companies[0].venues[1].name`."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class Faults(list[FieldFault]):
    """The faults found so far."""

    def note(self, place: str, message: str, *, value: Any = None) -> None:
        """Add a fault. A value other than None is quoted, shortened."""
        quoted = "" if value is None else f"{_quote(value)}: "
        self.append(FieldFault(place, quoted + message))

    def note_conflicts(self, place: str, conflicts: Iterable[tuple[str, str]]) -> None:
        """Add the faults in the combination of fields, as (field, message) pairs.

        A field that already has a fault of its own is left out.
        """
        known = {fault.place for fault in self}
        for name, message in conflicts:
            if joined(place, name) not in known:
                self.note(joined(place, name), message)


class Fields(BaseModel):
    """The fields that a request or a file gives for one kind of record.

    An attribute has the name of its column. Its alias is the name in requests, if that differs;
    further names follow in an AliasChoices. A field with a default may be absent.
    """

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Schema:
        """The schema, with each of a field's names as a property."""
        schema: Schema = handler.resolve_ref_schema(handler(core))
        for name, *others in spellings(cls).values():
            for other in others:
                note = f"Another name of {name}; if both are given they must be equal."
                schema["properties"][other] = schema["properties"][name] | {"description": note}
            if others and name in schema.get("required", ()):
                schema["required"].remove(name)
                either = {"anyOf": [{"required": [each]} for each in (name, *others)]}
                schema.setdefault("allOf", []).append(either)
        return schema


M = TypeVar("M", bound=Fields)


def required(*attributes: str) -> Callable[[type[M]], type[M]]:
    """Make inherited fields required in a model."""

    def mark(model: type[M]) -> type[M]:
        for attribute in attributes:
            model.model_fields[attribute].default = PydanticUndefined
        model.model_rebuild(force=True)
        return model

    return mark


@functools.cache
def spellings(model: type[Fields]) -> dict[str, list[str]]:
    """Every name that requests may use for a field, by attribute; the main name comes first."""
    return {name: _names(name, field) for name, field in model.model_fields.items()}


def read_fields(
    model: type[Fields],
    given: Mapping[str, Any],
    *,
    place: str = "",
    faults: Faults,
    require: bool = True,
) -> dict[str, Any]:
    """The accepted values of the given fields, by attribute.

    Notes each bad value, each field that is given under two names with different values, and, if
    `require`, each required field that is not given. Unknown names are ignored: see `note_unknown`.
    """
    values: dict[str, Any] = {}
    for attribute, names in spellings(model).items():
        field = model.model_fields[attribute]
        used = [name for name in names if name in given]
        if not used and require and field.is_required():
            faults.note(joined(place, names[0]), _MISSING)
        for name in used:
            try:
                value = _adapters(model)[attribute].validate_python(given[name])
            except ValidationError as error:
                faults.note(joined(place, name), _refusal(field, given[name], error))
                continue
            if values.setdefault(attribute, value) != value:
                faults.note(
                    joined(place, names[0]), f"given twice, also as {name}, with another value"
                )
    return values


def note_unknown(known: Sequence[str], given: Iterable[str], *, place: str, faults: Faults) -> None:
    """Note each unknown name, because a misspelt field would be ignored in silence."""
    for name in given:
        if name not in known:
            faults.note(joined(place, name), f"unknown field; accepted: {', '.join(known)}")


def joined(place: str, name: str) -> str:
    """The place of a field within an object."""
    return f"{place}.{name}" if place else name


def _names(attribute: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [str(alias or attribute)]


@functools.cache
def _adapters(model: type[Fields]) -> dict[str, TypeAdapter[Any]]:
    return {
        name: TypeAdapter(field.rebuild_annotation()) for name, field in model.model_fields.items()
    }


def _refusal(field: FieldInfo, value: Any, error: ValidationError) -> str:
    """What the field accepts, behind the value unless it is secret."""
    cause = error.errors(include_url=False)[0].get("ctx", {}).get("error")
    message = str(cause) if cause else f"accepted: {field.description}"
    return f"{_quote(value)}: {message}" if field.repr else message


def _quote(value: Any) -> str:
    try:
        quoted = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "nested too deeply"
    quoted = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in quoted[: _LONGEST_QUOTE + 1])
    return quoted if len(quoted) <= _LONGEST_QUOTE else quoted[: _LONGEST_QUOTE - 1] + "…"


# Control characters, and characters that change the direction of the text or end the line.
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_HAS_CONTROL = re.compile(f"[{_CONTROL}\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def text(longest: int | None = 255, *, shortest: int = 1) -> ValueReader:
    """A string of `shortest` to `longest` characters. Blanks at its ends count and are kept."""
    return _string(longest, shortest, r"\x00", _UNSTORABLE, "NUL characters")


def line(longest: int | None = 255, *, shortest: int = 1) -> ValueReader:
    """As `text`, without line breaks, for names and other texts in tables, terminals and logs."""
    return _string(longest, shortest, _CONTROL, _HAS_CONTROL, "control characters")


def _string(
    longest: int | None, shortest: int, refused: str, has_refused: re.Pattern[str], which: str
) -> ValueReader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or has_refused.search(value):
            raise FieldError(f"accepted: a string without {which}")
        if len(value) < shortest or (shortest and not value.strip()):
            raise FieldError(f"accepted: a string of {shortest} or more characters, not all blank")
        if longest is not None and len(value) > longest:
            raise FieldError(f"accepted: a string of at most {longest} characters")
        return value

    other = f"[^{refused}]*"
    filled = f"^{other}[^\\s{refused}]{other}$" if shortest else f"^{other}$"
    limits = {"minLength": shortest} | ({} if longest is None else {"maxLength": longest})
    return ValueReader(read, {"type": "string", "pattern": filled, **limits})


def choice(*names: str) -> ValueReader:
    """One of some words, in any case; stored as spelt in the code."""
    by_name = {name.lower(): name for name in names}

    def read(value: Any) -> str:
        found = by_name.get(value.strip().lower()) if isinstance(value, str) else None
        if found is None:
            raise FieldError(f"accepted: {', '.join(names)}")
        return found

    return ValueReader(read, {"type": "string", "enum": list(names)})


def integer(lowest: int, highest: int) -> ValueReader:
    """A whole number, also as 100.0, or a string of its digits."""

    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
            value = int(value)
        # Above 2**53 a float stands for several whole numbers.
        if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
            value = int(value)
        if type(value) is not int or not lowest <= value <= highest:
            raise FieldError(f"accepted: a whole number from {lowest} to {highest}")
        return value

    return ValueReader(read, {"type": "integer", "minimum": lowest, "maximum": highest})


def number(lowest: float, highest: float) -> ValueReader:
    """A finite number, or a string of its digits."""

    def read(value: Any) -> float:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}(?:\.[0-9]{1,17})?", value):
            value = float(value)
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not math.isfinite(value) or not lowest <= value <= highest:
            raise FieldError(f"accepted: a number from {lowest:g} to {highest:g}")
        return float(value)

    return ValueReader(read, {"type": "number", "minimum": lowest, "maximum": highest})


@reader(
    anyOf=[
        {"type": "boolean"},
        {"type": "integer", "enum": [0, 1]},
        {"type": "string", "enum": ["0", "1", "true", "false"]},
    ]
)
def boolean(value: Any) -> bool:
    """true or false, 1 or 0, or any of these as a string."""
    known = value.lower() if isinstance(value, str) else value
    if isinstance(known, bool | int | str) and known in (True, "1", "true"):
        return True
    if isinstance(known, bool | int | str) and known in (False, "0", "false"):
        return False
    raise FieldError("accepted: true, false, 1, 0, also as strings")


@reader(type="string", format="uuid")
def uuid(value: Any) -> str:
    """A UUID in any case, with or without dashes; stored in lower case with dashes."""
    dashed = r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}"
    if isinstance(value, str) and re.fullmatch(dashed, value.strip().lower()):
        return str(UUID(value.strip()))
    raise FieldError("accepted: a UUID of 32 hexadecimal digits, with or without dashes")


# A date that exists in every year, and offsets that a datetime can hold.
_DATE = (
    r"[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_HOUR = r"(?:[01][0-9]|2[0-3])"
_MINUTE = r"[0-5][0-9]"


@reader(
    type="string",
    pattern=rf"^{_DATE}[Tt ]{_HOUR}:{_MINUTE}:{_MINUTE}(?:\.[0-9]{{1,9}})?"
    rf"(?:[Zz]|[+-]{_HOUR}:?{_MINUTE})$",
    examples=["2026-11-20T10:00:00+0100"],
)
def timestamp(value: Any) -> datetime:
    """An instant with the offset in which it was written."""
    form = r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)"
    try:
        if isinstance(value, str) and re.fullmatch(form, value, re.ASCII):
            written = datetime.fromisoformat(value.upper())
            written.astimezone(UTC)
            return written
    except (ValueError, OverflowError):
        # Falls through: there is no such day, or no such instant in UTC.
        pass
    raise FieldError("accepted: a timestamp as 2026-11-20T10:00:00+0100, or in RFC 3339")


def time_of_day(*, end: bool) -> ValueReader:
    """HH:MM as minutes from midnight; 24:00 only as an end."""
    pattern = f"^(?:{_HOUR}:{_MINUTE}|24:00)$" if end else f"^{_HOUR}:{_MINUTE}$"

    def read(value: Any) -> int:
        if not isinstance(value, str) or not re.fullmatch(pattern[1:-1], value):
            last = "24:00" if end else "23:59"
            raise FieldError(f"accepted: a time of day as HH:MM, 00:00 to {last}")
        return int(value[:2]) * 60 + int(value[3:])

    return ValueReader(read, {"type": "string", "pattern": pattern})


@reader(
    type="string",
    pattern=r"^(?:none|(?:[0-9]{1,2} )?(?:second|minute|hour|day|week|month|year)s?"
    r"|P(?:[0-9]{1,3}D)?T[0-9]{1,4}[HMS]|P[0-9]{1,2}[WD])$",
    examples=["day", "15 minutes", "PT15M"],
)
def cache(value: Any) -> str:
    """A cache delay that rules.parsing understands; stored as written."""
    try:
        parse_delay(value if isinstance(value, str) else "")
    except ValueError as error:
        raise FieldError(str(error)) from None
    return str(value)


@reader(type="string", enum=sorted(ZONES))
def time_zone(value: Any) -> str:
    """The IANA name of a time zone."""
    if isinstance(value, str) and value in ZONES:
        return value
    raise FieldError("accepted: the IANA name of a time zone, such as Europe/Paris")


@reader(type="string", maxLength=254, pattern=r"^[!-?A-~]{1,64}@[!-?A-~]{1,100}$")
def email(value: Any) -> str:
    """An e-mail address; stored in lower case."""
    address = value.strip() if isinstance(value, str) and len(value) <= 254 else ""
    if re.fullmatch(r"[^@\s]+@[^@\s]+", address) and not _HAS_CONTROL.search(address):
        return address.lower()
    raise FieldError("accepted: an e-mail address of at most 254 characters, without spaces")


_LABEL = r"(?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"


@reader(
    type="string",
    maxLength=2048,
    pattern=rf"^https?://[A-Za-z]{_LABEL}(?:\.[A-Za-z]{_LABEL}){{0,4}}"
    r"(?::[1-9][0-9]{0,3})?(?:/[!-~]*)?$",
    examples=["https://www.example.com/content"],
)
def web_address(value: Any) -> str:
    """An http or https URL without user and password."""
    try:
        if isinstance(value, str) and len(value) <= 2048 and value.isprintable():
            parts = urlsplit(value)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            if good and parts.username is None and parts.password is None and " " not in value:
                return value
    except ValueError:
        # Falls through: the text cannot be split into the parts of a URL.
        pass
    raise FieldError(
        "accepted: an address http:// or https://, of at most 2048 characters, "
        "without a user and password (those belong in parameters)"
    )


_SCRIPTS = ("javascript", "vbscript", "data", "file")
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}:"


@reader(
    type="string",
    maxLength=8192,
    pattern=rf"^(?!(?:{'|'.join(_SCRIPTS)}):)(?:[a-z][a-z0-9+.-]{{0,30}}:[!-~]{{1,2000}})?$",
    examples=["https://www.example.com/offer"],
)
def link(value: Any) -> str:
    """A link that a phone can open, to a page or into an application, or nothing."""
    if isinstance(value, str) and len(value) <= 8192 and value.isprintable():
        is_script = value.partition(":")[0].lower() in _SCRIPTS
        if value == "" or (re.fullmatch(rf"{_SCHEME}\S+", value) and not is_script):
            return value
    raise FieldError(
        "accepted: an address with its scheme, as https://www.example.com/offer or app:offer, "
        f"without blanks, of at most 8192 characters; no {', '.join(_SCRIPTS)}"
    )


_COLOUR = (
    r"(?:#?(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})|[A-Za-z]{3,24}"
    r"|(?:rgb|hsl)a?\([0-9., %/+-]{5,40}\))?"
)


@reader(type="string", maxLength=64, pattern=rf"^{_COLOUR}$", examples=["#ff8800", "orange"])
def colour(value: Any) -> str:
    """A colour in CSS's forms (the # may be missing), or nothing; stored as written."""
    if isinstance(value, str) and re.fullmatch(_COLOUR, value, re.ASCII):
        return value
    raise FieldError("accepted: a colour as #ff8800, orange or rgb(255, 136, 0)")
