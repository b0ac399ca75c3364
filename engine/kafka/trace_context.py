"""Finds and checks the W3C trace context in the headers of Kafka records. Pure.

Headers from outside reach customers' services, so only a context of the standard's form is passed
on. `traceparent` is a random number. `tracestate` may contain more, so it stays within Kafka.
"""

import re
from collections.abc import Iterable
from itertools import islice

from engine.kafka.batch_sender import Headers

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[\x20-\x7e]{1,512}")
_MOST_HEADERS = 64  # examined, because a record may have a hundred thousand
_ID = slice(3, 35)  # in the text of a traceparent


def trace_headers(headers: Iterable[tuple[str, bytes]]) -> Headers:
    """The trace context among a record's first headers; empty if there is no valid one."""
    first = islice(headers, _MOST_HEADERS)
    found = {name: value for name, value in first if name in (TRACEPARENT, TRACESTATE)}
    parent, state = found.get(TRACEPARENT), found.get(TRACESTATE)
    if not parent or not _PARENT.fullmatch(parent):
        return []
    passed = [(TRACEPARENT, parent)]
    if state and _STATE.fullmatch(state):
        passed.append((TRACESTATE, state))
    return passed


def traceparent_of(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """The traceparent in headers from `trace_headers` or from a span."""
    return next((value.decode() for name, value in headers if name == TRACEPARENT), None)


def trace_id_of(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """The trace id in headers from `trace_headers` or from a span."""
    parent = traceparent_of(headers)
    return None if parent is None else parent[_ID]
