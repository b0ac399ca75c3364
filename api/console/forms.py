"""Reads posted forms, refuses those of other sites, and shows delays and tags in forms."""

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request

from api.answers import ApiError
from api.bodies import read_bytes
from api.permissions import services_of
from rules.parsing import DELAY_UNITS, parse_delay

PostedForm = ImmutableMultiDict[str, str]
_MOST_FIELDS = 3000


async def read_form(request: Request) -> PostedForm:
    """The form in the body of a request; CRLF, which browsers send, becomes LF.

    Raises ApiError, also for a form that another site has sent.
    """
    _refuse_other_sites(request)
    # Percent encoding triples the size of bytes that are not ASCII.
    raw = await read_bytes(request, 3 * services_of(request).max_body)
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise ApiError(400, "the form cannot be read") from None
    return ImmutableMultiDict([(name, value.replace("\r\n", "\n")) for name, value in pairs])


def _refuse_other_sites(request: Request) -> None:
    """Raise ApiError unless the browser says that a page of this site sends the request.

    Sec-Fetch-Site is the browser's word on what it sees, also behind a proxy that changes the host;
    browsers leave it out on plain http elsewhere than on this machine, and then Origin counts.
    """
    site = request.headers.get("sec-fetch-site")
    if site is None:
        origin = urlsplit(request.headers.get("origin", "")).netloc
        is_own = bool(origin) and origin == request.headers.get("host")
    else:
        is_own = site == "same-origin"
    if not is_own:
        raise ApiError(403, "this request does not come from a page of the console")


def split_delay(text: str) -> tuple[str, str]:
    """The number and the unit of a delay, `none` for no delay; of an unknown text, as joined."""
    try:
        seconds = parse_delay(text)
    except ValueError:
        number, _, unit = text.removesuffix("s").rpartition(" ")
        return (number, unit) if unit in DELAY_UNITS else (text, "day")
    if not seconds:
        return "", "none"
    unit = [unit for unit, each in DELAY_UNITS.items() if seconds % each == 0][-1]
    return str(seconds // DELAY_UNITS[unit]), unit


def joined_delay(number: str, unit: str) -> str:
    """The delay as the interface takes it."""
    if unit == "none":
        return unit
    return unit if number.strip() in ("", "1") else f"{number.strip()} {unit}s"


_TAG = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*(?=[,\n]|$)|([^,\n]+))')


def tag_names(text: str) -> list[dict[str, str]]:
    """The tags in a comma-separated text.

    A name with a comma, or with blanks at its ends, stands in double quotes.
    """
    names = [quoted.replace('""', '"') or plain.strip() for quoted, plain in _TAG.findall(text)]
    return [{"name": name} for name in names if name]


def tag_text(tags: Iterable[dict[str, str]]) -> str:
    """The text from which `tag_names` reads the tags again."""
    return ", ".join(
        '"' + name.replace('"', '""') + '"' if re.search(r'[,"]|^\s|\s$', name) else name
        for name in (tag["name"] for tag in tags)
    )
