"""The format of a file of detections, by an option or by its suffix."""

from enum import StrEnum
from pathlib import Path

import typer

_CSV_SUFFIXES = (".csv",)
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


class Format(StrEnum):
    """What `--format` takes."""

    JSONL = "jsonl"
    CSV = "csv"


def form_of(file: Path) -> Format:
    """The format by the suffix; standard input (-) is JSON Lines. Raises BadParameter."""
    suffix = file.suffix.lower()
    if suffix in _CSV_SUFFIXES:
        return Format.CSV
    if suffix in _JSON_SUFFIXES or str(file) == "-":
        return Format.JSONL
    raise typer.BadParameter(
        f"cannot tell the format of {file} by its suffix: say --format jsonl or --format csv",
        param_hint="file",
    )
