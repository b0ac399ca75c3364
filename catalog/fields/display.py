"""The readers of what a phone or a map shows: colours and links."""

import re
from typing import Any

from catalog.fields.reader import FieldError, any_case, reader

_HEX = "[0-9A-Fa-f]"
_COLOUR = (
    rf"(?:#?(?:{_HEX}{{3,4}}|{_HEX}{{6}}|{_HEX}{{8}})|[A-Za-z]{{3,24}}"
    r"|(?:rgb|hsl)a?\([0-9., %/+-]{5,40}\))?"
)
_LONGEST_LINK = 8192
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:\S+")
_SCRIPTS = ("javascript", "vbscript", "data", "file")
_PLAIN_LINK = r"[A-Za-z][A-Za-z0-9+.-]{0,30}:[!-~]{1,2000}"


@reader(type="string", maxLength=64, pattern=rf"^{_COLOUR}$", examples=["#ff8800", "orange"])
def colour(value: Any) -> str:
    """A colour as CSS writes it (the # may be missing), or nothing; kept as written."""
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
