"""All findings of a run in one file."""

from pathlib import Path

import msgspec

from benchmarks.figures import Findings


def write_all(file: Path, found: dict[str, Findings]) -> None:
    """Write the findings by name of the benchmark."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))


def read_all(file: Path) -> dict[str, Findings]:
    """The findings that `write_all` wrote."""
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Findings])
