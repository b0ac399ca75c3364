"""A change as `proximity audit` prints it: its time is written as everywhere."""

from datetime import UTC, datetime

from catalog.models import AuditEntry
from engine.cli.audit import _fields, _line


def test_an_edit() -> None:
    entry = AuditEntry(
        id=1,
        create_on=datetime(2026, 11, 20, 9, 30, tzinfo=UTC),
        email="a@b.example",
        action="edit",
        kind="venue",
        ref=7,
        before={"name": "Pier"},
        after={"name": "Quay"},
    )
    assert (
        _line(entry) == '2026-11-20T09:30:00+0000 a@b.example edit venue 7: name "Pier" -> "Quay"'
    )
    assert _fields(entry)["create_on"] == "2026-11-20T09:30:00+0000"
