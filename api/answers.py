"""Answers: JSON bytes, and the forms that values take in them."""

from datetime import datetime
from typing import Any

import orjson
from starlette.responses import Response

from api.errors import ApiError

JSON = "application/json"
_DONE = orjson.dumps({"status": "success", "code": 200})


def answer(content: Any, status: int = 200) -> Response:
    """A record or a list of them."""
    return Response(orjson.dumps(content), status, media_type=JSON)


def done() -> Response:
    """What a deletion answers."""
    return Response(_DONE, media_type=JSON)


def error_answer(error: ApiError) -> Response:
    """An error, told."""
    return Response(orjson.dumps(error.body), error.status, error.headers, JSON)


def timestamp(instant: datetime) -> str:
    """As the interface writes it, in the instant's own offset: 2026-11-20T10:00:00+0100."""
    text = instant.isoformat(timespec="seconds")
    return text[:-3] + text[-2:]


def time_of_day(minute: int) -> str:
    """Minutes from midnight as HH:MM; 1440 is 24:00."""
    return f"{minute // 60:02}:{minute % 60:02}"
