"""The libraries of others are as they were published."""

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("place", "licence", "count"),
    [
        ("api/console/vendor/htmx", "Zero-Clause BSD", 3),
        ("tests/browser/axe", "Mozilla Public License", 3),
    ],
)
def test_hashes(place: str, licence: str, count: int) -> None:
    folder = ROOT / place
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == count
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    assert licence in (folder / "LICENSE").read_text()
