"""Beacons, geofences, NFC tags and QR codes as CSV files, and back: with a preview of the changes.

Each line of a file is a new record or a stored one, which it names by its id or by what makes it
unique. The interface checks all of them before any is stored.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.responses import Response

from api.bodies import MOST_LISTED
from api.console.context import PageContext
from api.console.interface import faults_of, message_of
from api.console.pages.records import IN_VENUES, FormField, RecordKind, venue_of
from api.console.rendering import csv_file
from api.console.session import Notice
from catalog.plain_text import of_csv

_ACTIVE = FormField("active", "active", "flag")
# What names a stored record in a line without an id.
_KEYS = {"beacon": ("uuid", "major", "minor"), "geofence": ("name",)}


@dataclass(kw_only=True)
class SheetLine:
    """A line of a file: the record as the interface takes it, and whether it is stored already.

    `changes` has the label of each changed field, its text after and before.
    """

    number: int
    values: dict[str, Any]
    is_stored: bool
    changes: list[tuple[str, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """What becomes of it, as the key of a text."""
        if self.faults:
            return "line_faulty"
        if not self.is_stored:
            return "line_new"
        return "line_changed" if self.changes else "line_same"


async def export(kind: RecordKind, context: PageContext) -> Response:
    """All records of the venue as a file."""
    fields = (*kind.fields, _ACTIVE)
    rows = [
        [each["id"], *(one.shown(each) for one in fields)]
        for each in await context.get(kind.list_path(context))
    ]
    head = ["id", *(each.name for each in fields)]
    return csv_file(f"{kind.many}-{context.path_number('id')}", [head, *rows])


async def show_import(kind: RecordKind, context: PageContext) -> Response:
    """Show the empty form."""
    return await _page(kind, context, [])


async def import_sheet(kind: RecordKind, context: PageContext) -> Response:
    """Show what the file changes, with the faults of each line; store it on the second request."""
    try:
        lines = await _read(kind, context)
    except (ValueError, csv.Error) as error:
        return await _page(kind, context, [], str(error))
    message = await _send(kind, context, lines, dry=True)
    if "apply" in context.form and not message and not any(line.faults for line in lines):
        message = await _send(kind, context, lines, dry=False)
        if not message:
            count = sum(line.state != "line_same" for line in lines)
            return context.redirect(kind.page(context), Notice("saved", str(count)))
    return await _page(kind, context, lines, message)


async def _page(
    kind: RecordKind, context: PageContext, lines: list[SheetLine], message: str = ""
) -> Response:
    states = [line.state for line in lines]
    counts = {state: states.count(state) for state in sorted(set(states))}
    is_faulty = bool(message) or "line_faulty" in counts
    return context.page(
        "import.html",
        400 if is_faulty else 200,
        kind=kind,
        venue=await venue_of(context),
        columns=", ".join(["id", *(each.name for each in kind.fields), "active"]),
        lines=lines,
        counts=counts,
        message=message,
        may_apply=not is_faulty and bool(counts.keys() - {"line_same"}),
    )


async def _read(kind: RecordKind, context: PageContext) -> list[SheetLine]:
    """The lines of the file. Raises ValueError if its head is wrong, or it is too long."""
    texts, fields = context.texts, {each.name: each for each in (*kind.fields, _ACTIVE)}
    text = context.form.get("csv", "").lstrip("\ufeff\n")
    # A spreadsheet of many countries takes ; for the separator.
    delimiter = ";" if ";" in text.partition("\n")[0] else ","
    reader = csv.DictReader(text.splitlines(), delimiter=delimiter, restkey="-", restval="")
    if unknown := set(reader.fieldnames or ["-"]) - fields.keys() - {"id"}:
        raise ValueError(texts("unknown_columns", names=", ".join(sorted(unknown))))
    rows = [(reader.line_num, row) for row in reader]
    if not 0 < len(rows) <= MOST_LISTED:
        raise ValueError(texts("lines_accepted", most=MOST_LISTED))
    stored: dict[str, dict[str, Any]] = {}
    for each in await context.get(kind.list_path(context)):
        stored[str(each["id"])] = stored[_key(kind, each)] = each
    lines, seen = [], dict[str, int]()
    for number, raw in rows:
        row = {name: of_csv(cell) for name, cell in raw.items() if name in fields}
        given_id = raw.get("id", "").strip()
        found = stored.get(given_id or _key(kind, row))
        line = _line(context, number, row, list(fields.values()), found)
        if "-" in raw:  # cells without a head
            line.faults.append(texts("unknown_columns", names=", ".join(raw["-"])))
        if given_id and found is None:
            line.faults.append(texts("unknown_id", id=given_id))
        key = _key(kind, found or row)
        if seen.setdefault(key, number) != number:
            line.faults.append(texts("same_as_line", line=seen[key]))
        lines.append(line)
    return lines


def _key(kind: RecordKind, row: Mapping[str, Any]) -> str:
    cells = (str(row.get(name, "")) for name in _KEYS.get(kind.record, ("value",)))
    return ":" + ":".join(cell.replace("-", "").lower() for cell in cells)


def _line(
    context: PageContext,
    number: int,
    row: dict[str, str],
    fields: list[FormField],
    stored: dict[str, Any] | None,
) -> SheetLine:
    given = {each.name: each.submitted(row) for each in fields if each.name in row}
    if stored is None:
        values = {each.name: each.empty() for each in fields} | given
        return SheetLine(number=number, values=values, is_stored=False)
    changes = [
        (context.texts.get(each.label), row[each.name], str(each.shown(stored)))
        for each in fields
        if each.name in given and each.plain(row[each.name]) != each.plain(each.shown(stored))
    ]
    return SheetLine(number=number, values=stored | given, is_stored=True, changes=changes)


async def _send(
    kind: RecordKind, context: PageContext, lines: list[SheetLine], *, dry: bool
) -> str:
    """Have the interface check or store the lines, and note their faults.

    Returns the message of a refusal that is not about a line.
    """
    refused = ""
    for method, state in (("POST", "line_new"), ("PUT", "line_changed")):
        sent = [line for line in lines if line.state == state]
        if not sent:
            continue
        values = [line.values for line in sent]
        reply = await context.call(method, kind.list_path(context), values, dry=dry)
        refused = refused or message_of(reply)
        for place, fault in faults_of(reply).items():
            number, _, name = place.removeprefix("[").partition("].")
            if number.isdigit():
                _note(context, sent[int(number)], name, fault)
    return "" if any(line.faults for line in lines) else refused


def _note(context: PageContext, line: SheetLine, name: str, fault: str) -> None:
    name = name.partition("[")[0]
    words = context.fault(name, fault, line.values.get(name))
    line.faults.append(f"{context.texts.get(name)}: {words}")


def _pages(kind: RecordKind) -> tuple[tuple[str, str, Any], ...]:
    listed = f"/venues/{{id:int}}/{kind.many}"
    return (
        ("GET", f"{listed}/export", partial(export, kind)),
        ("GET", f"{listed}/import", partial(show_import, kind)),
        ("POST", f"{listed}/import", partial(import_sheet, kind)),
    )


PAGES = tuple(page for kind in IN_VENUES for page in _pages(kind))
