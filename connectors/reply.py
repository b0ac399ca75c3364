"""Reads a reply: it holds content, or declines, or raises Failed. Strict and pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from connectors.model import CallFault, Content, Declined, Failed, Format

_OK = 200
_NO_CONTENT = 204
_RETRIED = frozenset({429, 502, 503, 504})
_TOO_MANY = 429
_SERVER_ERROR = 500
_LONGEST_NUMBER = 12  # digits of a Retry-After worth reading
_LONGEST_DATE = 64


class _Document(msgspec.Struct):
    """The JSON object in a reply. Unknown fields are ignored."""

    format: Format | None = None
    send: bool = True
    title: str | None = None
    push: str | None = None
    template: str | None = None
    url: str | None = None
    html: str | None = None


_decode = msgspec.json.Decoder(_Document).decode


def read_reply(
    status: int, headers: Mapping[str, str], body: bytes, *, now: float
) -> Content | Declined:
    """The result in a complete reply. `now` (epoch s) is for a Retry-After that is a date.

    Raises Failed.
    """
    if status == _NO_CONTENT:
        return Declined()
    if status != _OK:
        raise Failed(
            CallFault.STATUS,
            f"status {status}",
            retriable=status in _RETRIED,
            counts=status == _TOO_MANY or status >= _SERVER_ERROR,
            retry_after=retry_after(headers.get("retry-after", ""), now),
        )
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Failed(CallFault.REPLY, "a reply in a content-encoding that was not accepted")
    try:
        document = _decode(body)
    except msgspec.ValidationError as error:
        # The error's text may quote a value; the path behind it names only fields of ours.
        _, _, path = str(error).rpartition(" - at ")
        detail = f"a wrong value at {path}" if " - at " in str(error) else "not a JSON object"
        raise Failed(CallFault.REPLY, detail) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Failed(CallFault.REPLY, "not JSON in UTF-8") from None
    if not document.send:
        return Declined()
    format_ = document.format
    if format_ is None:
        raise Failed(CallFault.REPLY, "format is missing; accepted: template, url, html")
    content: str | None = getattr(document, format_)
    if content is None or not content.strip():
        raise Failed(CallFault.REPLY, f"format is {format_}, but that field is empty")
    return Content(format=format_, content=content, title=document.title, push=document.push)


def retry_after(value: str, now: float) -> float | None:
    """The seconds of a Retry-After header; None if it is neither number nor date."""
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) <= _LONGEST_NUMBER:
        return float(value)
    if len(value) > _LONGEST_DATE:
        return None
    try:
        date = parsedate_to_datetime(value)
        at = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return max(0.0, (at - datetime.fromtimestamp(now, UTC)).total_seconds())
    except (ValueError, OverflowError, TypeError, LookupError):
        # The parser of e-mail dates also raises the last two for some texts.
        return None
