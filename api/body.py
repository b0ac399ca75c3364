"""The body of a request: a JSON object of limited size that arrives in limited time."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from api.errors import ApiError, bad_fields
from catalog.fields.base import FieldFault

_ACCEPTED = "accepted: a JSON object in UTF-8, its numbers of 64 bits"
_CLOSE = {"connection": "close"}


async def read_object(request: Request, *, longest: int, seconds: float) -> dict[str, Any]:
    """The object. Raises ApiError: 415, 413 past `longest` bytes, 408 past `seconds`, 400."""
    _check_type(request.headers.get("content-type"))
    raw = await read_bytes(request, longest=longest, seconds=seconds)
    try:
        content = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _unreadable(raw, error) from None
    if not isinstance(content, dict):
        raise ApiError(400, "the body is not a JSON object", fields={"body": _ACCEPTED})
    return content


def raise_faults(faults: Sequence[FieldFault]) -> None:
    """Raise ApiError 400 if there are any."""
    if not faults:
        return
    by_place: dict[str, str] = {}
    for fault in faults:
        before = by_place.get(fault.place)
        by_place[fault.place] = f"{before}; {fault.message}" if before else fault.message
    raise bad_fields(by_place)


def _check_type(written: str | None) -> None:
    if written is None:
        return
    kind, _, parameters = written.lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('" ')
    if kind.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise ApiError(415, "the body must be application/json in UTF-8", headers=_CLOSE)


async def read_bytes(request: Request, *, longest: int, seconds: float) -> bytes:
    """The body. Raises ApiError: 413 past `longest` bytes, 408 past `seconds`, 400."""
    if int(request.headers.get("content-length", 0)) > longest:
        raise _too_large(longest)
    raw = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                raw += piece
                if len(raw) > longest:
                    raise _too_large(longest)
    except TimeoutError:
        raise ApiError(408, "the body took too long", headers=_CLOSE) from None
    except ClientDisconnect:
        raise ApiError(400, "the body ended too soon", headers=_CLOSE) from None
    return bytes(raw)


def _unreadable(raw: bytes, error: orjson.JSONDecodeError) -> ApiError:
    """Where reading it ended: the line, the column, and why."""
    if not raw.strip():
        return ApiError(400, "the body is empty", fields={"body": f"required; {_ACCEPTED}"})
    place = f"line {error.lineno}, column {error.colno}: {error.msg}"
    return ApiError(400, "the body is not JSON", fields={"body": f"{place}; {_ACCEPTED}"})


def _too_large(longest: int) -> ApiError:
    return ApiError(413, f"the body is larger than {longest} bytes", headers=_CLOSE)
