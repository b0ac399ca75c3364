"""The readers of texts, of words and addresses with a fixed form, and of lists."""

import re
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from catalog.fields.reader import FieldError, ValueReader, any_case, reader

DEEPEST = 16  # lists and objects within each other: encoders and decoders of JSON have limits
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}")
_HEX = "[0-9a-fA-F]"
_UUID_WRITTEN = rf"^(?:{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}|{_HEX}{{32}})$"
# Control characters, and characters that change the direction of the text or end the line.
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_HAS_CONTROL = re.compile(f"[{_CONTROL}\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# The zones of the package tzdata are the same on every host. A host's own directory may hold more
# (localtime, posix/..., right/...), which mean something else on another host.
ZONES = frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split()) - {"Factory"}
_LABEL = r"(?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
_HOST = rf"[A-Za-z]{_LABEL}(?:\.[A-Za-z]{_LABEL}){{0,4}}"
_COLOUR = (
    rf"(?:#?(?:{_HEX}{{3,4}}|{_HEX}{{6}}|{_HEX}{{8}})|[A-Za-z]{{3,24}}"
    r"|(?:rgb|hsl)a?\([0-9., %/+-]{5,40}\))?"
)
_LONGEST_LINK = 8192
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:\S+")
_SCRIPTS = ("javascript", "vbscript", "data", "file")
_PLAIN_LINK = r"[A-Za-z][A-Za-z0-9+.-]{0,30}:[!-~]{1,2000}"


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

    return ValueReader(read, {"type": "string", "pattern": f"^(?:{any_case(*by_name)})$"})


@reader(type="string", pattern=_UUID_WRITTEN)
def uuid(value: Any) -> str:
    """A UUID in any case, with or without dashes; stored in lower case with dashes."""
    if isinstance(value, str) and _UUID.fullmatch(value.strip().lower()):
        return str(UUID(value.strip()))
    raise FieldError("accepted: a UUID of 32 hexadecimal digits, with or without dashes")


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
    if _EMAIL.fullmatch(address) and not _HAS_CONTROL.search(address):
        return address.lower()
    raise FieldError("accepted: an e-mail address of at most 254 characters, without spaces")


@reader(
    type="string",
    maxLength=2048,
    pattern=rf"^https?://{_HOST}(?::[1-9][0-9]{{0,3}})?(?:/[!-~]*)?$",
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


@reader(type="array", items={})
def json_list(value: Any) -> list[Any]:
    """A list of any values, without NUL characters; nesting is limited."""
    if not isinstance(value, list) or not is_plain(value):
        raise FieldError(f"accepted: a list, nested {DEEPEST} deep at most, without NUL characters")
    return value


def is_plain(value: Any) -> bool:
    """Whether a JSON value is nested at most DEEPEST deep and its strings can be stored."""
    level = [value]
    for _ in range(DEEPEST):
        if any(isinstance(item, str) and _UNSTORABLE.search(item) for item in level):
            return False
        level = [inner for item in level for inner in _inside(item)]
    return not any(
        isinstance(item, list | dict) or (isinstance(item, str) and _UNSTORABLE.search(item))
        for item in level
    )


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return [*item, *item.values()]
    return item if isinstance(item, list) else []


@reader(type="string", maxLength=64, pattern=rf"^{_COLOUR}$", examples=["#ff8800", "orange"])
def colour(value: Any) -> str:
    """A colour in CSS's forms (the # may be missing), or nothing; stored as written."""
    if isinstance(value, str) and re.fullmatch(_COLOUR, value, re.ASCII):
        return value
    raise FieldError("accepted: a colour as #ff8800, orange or rgb(255, 136, 0)")


@reader(
    type="string",
    maxLength=_LONGEST_LINK,
    pattern=rf"^(?!(?:{any_case(*_SCRIPTS)}):)(?:{_PLAIN_LINK})?$",
    examples=["https://www.example.com/offer"],
)
def link(value: Any) -> str:
    """A link that a phone can open, to a page or into an application, or nothing."""
    if isinstance(value, str) and len(value) <= _LONGEST_LINK and _is_link(value):
        return value
    raise FieldError(
        "accepted: an address with its scheme, as https://www.example.com/offer or app:offer, "
        f"without blanks, of at most {_LONGEST_LINK} characters; no {', '.join(_SCRIPTS)}"
    )


def _is_link(value: str) -> bool:
    if value == "":
        return True
    scheme = value.partition(":")[0].lower()
    good = value.isprintable() and _LINK.fullmatch(value) is not None
    return good and scheme not in _SCRIPTS
