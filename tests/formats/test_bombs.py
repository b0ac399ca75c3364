"""Records that are made to cost much: each is refused, and at a bounded cost."""

import tracemalloc
from typing import Any

import orjson
import pytest

from engine.process.settings import FORMATS, REGISTERED_FORMATS
from tests.formats.records import refused, report
from tests.formats.test_properties import VALUES

MANY = 100_000
JSON_FORMATS = sorted({*FORMATS} - {*REGISTERED_FORMATS})
GATEWAY, BEACON = orjson.loads(VALUES["minew"][0])
UUID = BEACON["ibeaconUuid"]


@pytest.mark.parametrize("format_", JSON_FORMATS)
@pytest.mark.parametrize("deep", [b"[" * MANY, b'[{"type":' * MANY])
def test_json_nested_without_end(format_: str, deep: bytes) -> None:
    # By itself, in a field that nobody reads, or behind the last element.
    sample = VALUES[format_][0].rstrip()
    inside = sample[:-1] + (b"," if sample.endswith(b"]") else b',"x":') + deep
    for value in (deep, inside):
        assert refused(format_, report(value))[0] in ("malformed_json", "invalid_field")


@pytest.mark.parametrize(
    ("format_", "fields"),
    [
        ("own", {"uuid": UUID}),
        ("own", {"major": "7"}),
        ("own", {"detected_at": "2026-11-20T10:00:00Z"}),
        ("minew", {"ibeaconUuid": UUID}),
    ],
)
def test_long_texts_do_not_stay_in_memory(format_: str, fields: dict[str, str]) -> None:
    """A sender's records of a megabyte, each written in another way, filled the caches for good."""
    base = BEACON if format_ == "minew" else orjson.loads(VALUES[format_][0])

    def one(number: int) -> Any:
        body = base | {name: " " * (50_000 + number) + text for name, text in fields.items()}
        return report([GATEWAY, body] if format_ == "minew" else body)

    assert refused(format_, one(0))[0] == "invalid_field"
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, 41):
            refused(format_, one(number))
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 500_000  # of two megabytes
