"""What commands are given, and what `check` finds."""

import json
from typing import Any

from tests.servers.proximity import Command


def detection(udid: str, **more: Any) -> bytes:
    """A detection as a pipeline writes it."""
    fields = {
        "uuid": "b5c4a7e06f0d4c8e9d5a2c1f7a9e4b10",
        "major": 1,
        "minor": 2,
        "rssi": -60,
        "device": {"udid": udid},
    }
    return json.dumps(fields | more).encode()


def findings_of(check: Command) -> dict[str, tuple[str, str]]:
    """The state and the result of each finding of `check --json`."""
    rows = [json.loads(line) for line in check.stdout.splitlines()]
    return {f"{row['part']} {row['what']}": (row["state"], row["told"]) for row in rows}
