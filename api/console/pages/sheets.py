"""Beacons, geofences, NFC tags and QR codes as CSV files, and back: with a preview of the changes.

Each line of a file is a stored record, which it names by its id, or a new one. A dry run of the
interface checks all of them and shows what they would be.
"""

import csv
import io
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from api.answers import ApiError
from api.bodies import MOST_LISTED
from api.console.context import Context, Notice, PageContext
from api.console.pages.records import IN_VENUES, NEW, RecordKind, venue_of
from api.console.rendering import csv_file
from catalog.plain_text import of_csv

router = APIRouter()


@dataclass(kw_only=True)
class SheetLine:
    """A line of a file, as the interface takes it.

    `changes` has the label of each field that is new or changed, its text after and before.
    """

    number: int
    values: dict[str, Any]
    stored: dict[str, Any] | None
    changes: list[tuple[str, Any, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """What becomes of it, as the key of a text."""
        if self.faults:
            return "line_faulty"
        if self.stored is None:
            return "line_new"
        return "line_changed" if self.changes else "line_same"


async def export(kind: RecordKind, context: Context) -> Response:
    """All records of the venue as a file."""
    rows = [
        [each["id"], *(one.shown(each) for one in kind.fields)]
        for each in await context.get(kind.list_path(context))
    ]
    head = ["id", *(each.name for each in kind.fields)]
    return csv_file(f"{kind.record}s-{context.path_number('id')}", [head, *rows])


async def import_sheet(kind: RecordKind, context: Context) -> Response:
    """Show what the file changes, with the faults of each line; store it on the second request."""
    if context.request.method == "GET":
        return await _page(kind, context, [])
    try:
        lines = await _read(kind, context)
    except (ValueError, csv.Error) as error:
        return await _page(kind, context, [], str(error))
    message = await _send(kind, context, lines, dry=True)
    if "apply" not in context.form or message or any(line.faults for line in lines):
        return await _page(kind, context, lines, message)
    changed = [line for line in lines if line.state != "line_same"]
    if message := await _send(kind, context, changed, dry=False):
        return await _page(kind, context, lines, message)
    return context.redirect(kind.page(context), Notice("saved", str(len(changed))))


async def _page(
    kind: RecordKind, context: PageContext, lines: list[SheetLine], message: str = ""
) -> Response:
    counts = Counter(sorted(line.state for line in lines))
    is_faulty = bool(message) or "line_faulty" in counts
    return context.page(
        "import.html",
        400 if is_faulty else 200,
        kind=kind,
        venue=await venue_of(context),
        columns=", ".join(["id", *(each.name for each in kind.fields)]),
        lines=lines,
        counts=counts,
        message=message,
        may_apply=not is_faulty and bool(counts.keys() - {"line_same"}),
    )


async def _read(kind: RecordKind, context: PageContext) -> list[SheetLine]:
    """The lines of the file. Raises ValueError if its head is wrong, or it is too long."""
    texts, fields = context.texts, {each.name: each for each in kind.fields}
    text = context.form.get("csv", "").lstrip("\ufeff\n")
    # A spreadsheet of many countries takes ; for the separator.
    delimiter = ";" if ";" in text.partition("\n")[0] else ","
    lined = io.StringIO(text, newline="")
    reader = csv.DictReader(lined, delimiter=delimiter, restkey="-", restval="")
    if unknown := set(reader.fieldnames or ["-"]) - fields.keys() - {"id"}:
        raise ValueError(texts("unknown_columns", names=", ".join(sorted(unknown))))
    rows = [(reader.line_num, row) for row in reader]
    if not 0 < len(rows) <= MOST_LISTED:
        raise ValueError(texts("lines_accepted", most=MOST_LISTED))
    stored = {str(each["id"]): each for each in await context.get(kind.list_path(context))}
    lines = []
    for number, raw in rows:
        row = {name: of_csv(cell) for name, cell in raw.items() if name in fields}
        given_id = raw.get("id", "").strip()
        found = stored.get(given_id)
        values = {name: fields[name].submitted(row) for name in row}
        line = SheetLine(number=number, values=(found or NEW) | values, stored=found)
        if "-" in raw:  # cells without a head
            line.faults.append(texts("unknown_columns", names=", ".join(raw["-"])))
        if given_id and found is None:
            line.faults.append(texts("unknown_id", id=given_id))
        lines.append(line)
    return lines


async def _send(
    kind: RecordKind, context: PageContext, lines: list[SheetLine], *, dry: bool
) -> str:
    """Have the interface check or store the lines, and note their faults and changes.

    Returns the message of a refusal that is not about a line.
    """
    message, texts = "", context.texts
    good = [line for line in lines if not line.faults]
    for method, sent in (
        ("POST", [line for line in good if line.stored is None]),
        ("PUT", [line for line in good if line.stored is not None]),
    ):
        try:
            values = [line.values for line in sent]
            path = kind.list_path(context)
            answers = await context.ask(method, path, values, dry=dry) if sent else []
        except ApiError as refusal:
            message = message or refusal.message
            for place, fault in refusal.fields.items():
                number, _, name = place.removeprefix("[").partition("].")
                if number.isdigit():
                    label = texts.get(name.partition("[")[0])
                    sent[int(number)].faults.append(f"{label}: {fault}")
            continue
        for line, answer in zip(sent, answers, strict=True):
            line.changes = [
                (texts.get(each.name), each.shown(answer), each.shown(line.stored))
                for each in kind.fields
                if line.stored and each.shown(answer) != each.shown(line.stored)
            ]
    return "" if any(line.faults for line in lines) else message


for _kind in IN_VENUES:
    _kind.add_page(router, "GET", "/export", export)
    _kind.add_page(router, "GET", "/import", import_sheet)
    _kind.add_page(router, "POST", "/import", import_sheet)
