"""Timestamps in messages: `2026-11-20T10:00:00+0100`, RFC 3339, or epoch milliseconds."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_FORM = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)", re.ASCII
)
LATEST_MS = 253_402_300_799_000  # 9999-12-31T23:59:59Z: the last instant a datetime can hold

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# Devices report whole seconds and pipelines batch them, so most timestamps are in the cache.
_REMEMBERED = 16_384


@lru_cache(maxsize=_REMEMBERED)
def parse_text(text: str) -> float:
    """Epoch seconds of a written timestamp, to the millisecond. Raises ValueError.

    No finer, because Redis keeps claims in milliseconds, and memory must give the same answers.
    """
    if not _FORM.fullmatch(text):
        raise ValueError(
            "a timestamp is written 2026-11-20T10:00:00+0100, in RFC 3339, "
            "or as integer epoch milliseconds"
        )
    return (datetime.fromisoformat(text.upper()) - _EPOCH) // _MILLISECOND / 1000


def parse(value: str | int) -> float:
    """Epoch seconds of a timestamp in any accepted form. Raises ValueError."""
    if isinstance(value, str):
        return parse_text(value)
    if not 0 <= value <= LATEST_MS:
        raise ValueError("epoch milliseconds lie between 0 and the end of year 9999")
    return value / 1000


@lru_cache(maxsize=_REMEMBERED)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")


def format_instant(epoch: float) -> str:
    """The timestamp in the first form, in UTC and whole seconds (rounded down)."""
    return _format_second(int(epoch // 1))
