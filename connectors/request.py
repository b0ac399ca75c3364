"""Builds the HTTP request of a call. Pure."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from connectors.model import Call, CallDevice, HttpMethod, ParameterPlace, Parameters
from connectors.signing import signature_headers

# Headers that a parameter must not set: they decide where the request goes, how it is framed, what
# it contains, or how it is signed.
RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "idempotency-key",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)
_RESERVED_PREFIX = "proxy-"
# The query names that GET uses itself: a service might read the second value of a name.
RESERVED_IN_QUERY = frozenset(
    {
        "beacon",
        "campaign",
        "detected_at",
        "id",
        "id_connector",
        "major",
        "minor",
        "proximity",
        "udid",
        "uuid",
        "venue",
    }
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SAFE_IN_QUERY = "/?:@!$'()*,;"

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to send, parameters included. Header names are lower case."""

    method: str
    url: str
    headers: Headers
    body: bytes


def build_request(call: Call, *, agent: str, now: float) -> Request:
    """The request of one try at `now` (epoch s)."""
    endpoint = call.endpoint
    query: list[tuple[str, str]] = []
    body = b""
    if endpoint.method is HttpMethod.GET:
        query += _flat(call)
    else:
        body = msgspec.json.encode(_document(call))
    usable = usable_parameters(call)
    headers = _headers(call, agent)
    if body:
        headers.append((b"content-type", b"application/json"))
    if endpoint.place is ParameterPlace.QUERY:
        query += usable
    else:
        headers += [(n.lower().encode(), v.strip(" \t").encode()) for n, v in usable]
    if endpoint.secret:
        signed = signature_headers(secret=endpoint.secret, id_=call.id, timestamp=now, body=body)
        headers += [(name.encode(), value.encode()) for name, value in signed]
    return Request(
        method=endpoint.method.value,
        url=_with_query(endpoint.url, query),
        headers=headers,
        body=body,
    )


def is_reserved(name: str, *, method: str, place: str) -> bool:
    """Whether the request sets this name itself, so that a parameter must not.

    `method` and `place` as the interface has them, in upper or lower case. Reserved names are
    refused when a connector is saved; parameters stored before that are left out of the request.
    """
    if place.lower() == ParameterPlace.HEADER:
        lower = name.lower()
        return lower in RESERVED_HEADERS or lower.startswith(_RESERVED_PREFIX)
    return method.upper() == HttpMethod.GET and name in RESERVED_IN_QUERY


def usable_parameters(call: Call) -> Parameters:
    """The parameters that are sent: those whose names are not reserved, and that are valid."""
    endpoint = call.endpoint
    method, place = endpoint.method, endpoint.place
    own = {name for name, _ in endpoint.parameters if is_reserved(name, method=method, place=place)}
    left = tuple(each for each in endpoint.parameters if each[0] not in own)
    return tuple(p for p in left if _may_be_header(*p)) if place is ParameterPlace.HEADER else left


def _may_be_header(name: str, value: str) -> bool:
    return _TOKEN.fullmatch(name) is not None and _CONTROL.search(value) is None


def _headers(call: Call, agent: str) -> Headers:
    # identity: a compressed reply could be much larger than the bytes that are counted.
    headers = [
        (b"user-agent", agent.encode()),
        (b"accept", b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"idempotency-key", call.id.encode()),
    ]
    if call.traceparent is not None:
        headers.append((b"traceparent", call.traceparent.encode()))
    return headers


def _document(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "campaign": call.campaign,
        "venue": call.venue,
        "beacon": call.beacon,
        "proximity": call.proximity,
        "device": call.device,
        "detected_at": call.detected_at,
    }


def _flat(call: Call) -> list[tuple[str, str]]:
    """The document as query parameters; `id_connector` only where there is one."""
    beacon, device = call.beacon, call.device
    return [
        ("id", call.id),
        ("campaign", str(call.campaign.id)),
        ("venue", str(call.venue.id)),
        ("beacon", str(beacon.id)),
        ("uuid", beacon.uuid),
        ("major", str(beacon.major)),
        ("minor", str(beacon.minor)),
        ("proximity", call.proximity),
        ("udid", device.udid),
        *_id_connector(device),
        ("detected_at", call.detected_at),
    ]


def _id_connector(device: CallDevice) -> list[tuple[str, str]]:
    return [] if device.id_connector is None else [("id_connector", str(device.id_connector))]


def _with_query(url: str, query: list[tuple[str, str]]) -> str:
    """The url with `query` added to its own query, without its fragment."""
    parts = urlsplit(url)
    added = urlencode(query, quote_via=quote, safe=_SAFE_IN_QUERY)
    whole = "&".join(part for part in (parts.query, added) if part)
    return parts._replace(query=whole, fragment="").geturl()
