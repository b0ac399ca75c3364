"""The libraries of others are as they were published."""

import hashlib
from pathlib import Path

import pytest


@pytest.mark.parametrize("place", ["api/console/vendor/htmx", "tests/browser/axe"])
def test_hashes(place: str) -> None:
    folder = Path(__file__).parents[2] / place
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
