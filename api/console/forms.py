"""Reads posted forms and converts their fields to the types of the interface."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from api.answers import ApiError
from api.bodies import read_bytes
from api.console.interface import RefusedError
from rules.parsing import DAY, HOUR, MINUTE, MONTH, SECOND, WEEK, YEAR, parse_delay

_MOST_FIELDS = 3000
_TYPE = "application/x-www-form-urlencoded"


class PostedForm:
    """The fields of a form by name, each with all of its values."""

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """The last value, or an empty text. CRLF, which browsers send, becomes LF."""
        given = self._fields.get(name, ())
        return given[-1].replace("\r\n", "\n") if given else ""

    def all_values(self, name: str) -> list[str]:
        """All values of a field."""
        return list(self._fields.get(name, ()))

    def is_on(self, name: str) -> bool:
        """Whether a checkbox is ticked."""
        return bool(self._fields.get(name))

    def number(self, name: str) -> int | str | None:
        """A whole number; None if the field is empty.

        An invalid text is returned unchanged, because the interface refuses it with a message.
        """
        text = self.text(name).strip()
        return _whole(text) if text else None

    def numbers(self, name: str) -> list[int | str]:
        """All values of a field, each converted as `number` does."""
        return [_whole(text) for text in self.all_values(name)]

    def decimal(self, name: str) -> float | str:
        """A decimal number. An invalid text is returned unchanged, as `number` does."""
        text = self.text(name).strip().replace(",", ".")
        try:
            return float(text)
        except ValueError:
            return text

    def texts(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of several fields."""
        return {name: self.text(name) for name in names}


DELAY_UNITS = ("second", "minute", "hour", "day", "week", "month", "year")
_SECONDS = (SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR)
_DELAY = re.compile(rf"(?:([0-9]+)\s+)?({'|'.join(DELAY_UNITS)})s?", re.IGNORECASE | re.ASCII)


def split_delay(text: str) -> tuple[str, str]:
    """The number and the unit of a delay, `none` for no delay; an unknown text is the number."""
    if words := _DELAY.fullmatch(text.strip()):
        return words[1] or "1", words[2].lower()
    try:
        seconds = parse_delay(text)
    except ValueError:
        return text, "day"
    units = [(unit, each) for unit, each in zip(DELAY_UNITS, _SECONDS, strict=True)]
    whole = [(str(seconds // each), unit) for unit, each in units if seconds and not seconds % each]
    return whole[-1] if whole else ("", "none")


def joined_delay(number: str, unit: str) -> str:
    """The delay as the interface takes it."""
    if unit == "none":
        return unit
    return unit if number.strip() in ("", "1") else f"{number.strip()} {unit}s"


def tag_names(text: str) -> list[str]:
    """The names in a comma-separated text. A name with a comma stands in double quotes."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def tag_text(names: Iterable[str]) -> str:
    """The text from which `tag_names` reads the names again."""
    return ", ".join(
        '"' + name.replace('"', '""') + '"' if "," in name or '"' in name else name
        for name in names
    )


async def read_form(request: Request, longest: int) -> PostedForm:
    """The form in the body of a request. Raises RefusedError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("", _TYPE):
        raise RefusedError(415, f"the body must be {_TYPE}")
    try:
        # Percent encoding triples the size of bytes that are not ASCII.
        raw = await read_bytes(request, 3 * longest)
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ApiError as error:
        raise RefusedError(error.status, str(error)) from None
    except ValueError:
        raise RefusedError(400, "the form cannot be read") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return PostedForm(fields)


def _whole(text: str) -> int | str:
    try:
        return int(text) if len(text) < 20 else text
    except ValueError:
        return text
