"""The documents name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = "engine|rules|connectors|catalog|api|tests|deploy|benchmarks|docs"
NAMED = re.compile(rf"(?<![\w/.-])((?:{ROOMS})/[\w./-]+\.(?:py|lua|sql|md|jsonl?|ya?ml|csv|env))\b")


@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_file_that_is_named_exists(document: Path):
    text = document.read_text(encoding="utf-8")
    missing = {name for name in NAMED.findall(text) if not (ROOT / name).exists()}
    assert missing == set()
