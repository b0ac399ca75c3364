"""The documents name files that exist."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.house.source import ROOT

ROOMS = "engine|rules|connectors|catalog|api|tests|deploy|benchmarks|docs"
ENDING = r"\.(?:pyx?|pxd|lua|sql|md|jsonl?|ya?ml|csv|env)"
FULL = re.compile(rf"(?<![\w/.-])((?:{ROOMS})/[\w./-]+{ENDING})\b")
# A module in a room that the text is about: `fair_queue.py`, `kafka/consumer.py`.
SHORT = re.compile(r"`((?:\w+/)*\w+\.(?:pyx?|pxd|lua))`")


@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_file_that_is_named_exists(document: Path):
    text = document.read_text(encoding="utf-8")
    missing = {name for name in FULL.findall(text) if not (ROOT / name).exists()}
    missing |= {name for name in SHORT.findall(text) if not _is_somewhere(name)}
    assert missing == set()


def _is_somewhere(name: str) -> bool:
    return (ROOT / name).is_file() or any(path.endswith(f"/{name}") for path in _files())


@cache
def _files() -> list[str]:
    return [str(path) for room in ROOMS.split("|") for path in (ROOT / room).rglob("*.[pl]*")]
