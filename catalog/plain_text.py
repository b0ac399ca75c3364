"""Makes text from outside harmless in terminals and spreadsheets.

Names, udids and replies of services come from strangers. On a terminal a control sequence in them
can move the cursor, overwrite earlier lines or rename the window. A spreadsheet runs a cell that
begins like a formula.
"""

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

# Control characters of both sets, and characters that change the direction of text.
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
# In a file that is read again, a backslash that would be taken for an escape is escaped too.
_IN_CSV = re.compile(rf"{_CONTROLS.pattern}|\\(?=u[0-9a-f]{{4}})")
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def for_terminal(text: str) -> str:
    """The text on one line; control characters are written as in JSON, \u001b."""
    return _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """The rows as CSV, escaped as by `for_csv`."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(map(for_csv, rows))
    return stream.getvalue()


def for_csv(cells: Iterable[Any]) -> list[Any]:
    """The cells of a row, escaped so that no spreadsheet reads a text as a formula."""
    # A spreadsheet of many countries takes ; for the separator, within a cell too.
    return [
        ";".join(map(_no_formula, _IN_CSV.sub(_escape, cell).split(";")))
        if isinstance(cell, str)
        else cell
        for cell in cells
    ]


def _no_formula(part: str) -> str:
    # Also with an apostrophe of its own, which would be taken for the one that is added here.
    return f"'{part}" if part.replace("'", "").lstrip().startswith(_FORMULA) else part


def of_csv(text: str) -> str:
    """The text of a cell that `for_csv` has written."""
    parts = text.split(";")
    text = ";".join(part[1:] if _no_formula(part[1:]) == part else part for part in parts)
    # No stored text has surrogates.
    return re.sub(r"\\u((?!d[89a-f])[0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
