"""Builds and signs the HTTP request of a call. Pure.

Signatures are those of Standard Webhooks (https://www.standardwebhooks.com), symmetric form.
"""

import base64
import binascii
import hashlib
import hmac
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit

import httpx
import msgspec

from connectors.model import PLACES, Call, HttpMethod, ParameterPlace

# Headers that a parameter must not set: they decide where the request goes, how it is framed, what
# it contains, or how it is signed.
RESERVED_HEADERS = frozenset(
    (
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "http2-settings", "idempotency-key", "keep-alive", "te", "traceparent"),
        *("tracestate", "trailer", "transfer-encoding", "upgrade", "user-agent", "webhook-id"),
        *("webhook-signature", "webhook-timestamp"),
    )
)
_RESERVED_PREFIX = "proxy-"
# The query names of a GET request: of two values of one name a service might read the second.
RESERVED_IN_QUERY = frozenset(
    (
        *("beacon", "campaign", "detected_at", "geofence", "id", "id_connector", "major", "minor"),
        *("nfc", "proximity", "qrcode", "udid", "uuid", "venue"),
    )
)
SAFE_IN_QUERY = "/?:@!$'()*,;"
_SECRET_PREFIX = "whsec_"  # noqa: S105


def build_request(call: Call, *, agent: str, now: float) -> httpx.Request:
    """The request of one try at `now` (epoch s). Raises ValueError."""
    endpoint = call.endpoint
    query: list[tuple[str, str]] = []
    body = b""
    # identity: a compressed reply could be much larger than the bytes that the budget counts.
    headers = [
        ("user-agent", agent),
        ("accept", "application/json"),
        ("accept-encoding", "identity"),
        ("idempotency-key", call.id),
    ]
    if call.traceparent is not None:
        headers.append(("traceparent", call.traceparent))
    if endpoint.method is HttpMethod.GET:
        query += _flat(call)
    else:
        body = msgspec.json.encode(call.document)
        headers.append(("content-type", "application/json"))
    if endpoint.place is ParameterPlace.QUERY:
        query += endpoint.parameters
    else:
        headers += [(name.lower(), value.strip(" \t")) for name, value in endpoint.parameters]
    if endpoint.secret:
        headers += signature_headers(secret=endpoint.secret, id_=call.id, timestamp=now, body=body)
    return httpx.Request(
        endpoint.method.value,
        _parsed(_with_query(endpoint.url, query)),
        headers=httpx.Headers(headers, encoding="utf-8"),
        content=body,
    )


@lru_cache(maxsize=1024)
def _parsed(url: str) -> httpx.URL:
    """Most calls of a connector have the same url, unless it has the call in its query."""
    try:
        return httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None


def is_reserved(name: str, *, method: str, place: str) -> bool:
    """Whether the request itself sets this name, so that a parameter must not set it.

    `method` and `place` are those of the interface, in upper or lower case. Reserved names are
    refused when a connector is saved.
    """
    if place.lower() == ParameterPlace.HEADER:
        lower = name.lower()
        return lower in RESERVED_HEADERS or lower.startswith(_RESERVED_PREFIX)
    return method.upper() == HttpMethod.GET and name in RESERVED_IN_QUERY


def _flat(call: Call) -> list[tuple[str, str]]:
    """The document as query parameters, without those that have no value."""
    document = call.document
    beacon, device = document.get("beacon", {}), document["device"]
    flat = {
        "id": call.id,
        "campaign": document["campaign"]["id"],
        "venue": document["venue"]["id"],
        **{kind: document[kind]["id"] for kind in PLACES if kind in document},
        "uuid": beacon.get("uuid"),
        "major": beacon.get("major"),
        "minor": beacon.get("minor"),
        "proximity": document.get("proximity"),
        "udid": device["udid"],
        "id_connector": device["id_connector"],
        "detected_at": document["detected_at"],
    }
    return [(name, str(value)) for name, value in flat.items() if value is not None]


def _with_query(url: str, query: list[tuple[str, str]]) -> str:
    """The url with `query` added to its own query, without its fragment."""
    parts = urlsplit(url)
    added = urlencode(query, quote_via=quote, safe=SAFE_IN_QUERY)
    whole = "&".join(part for part in (parts.query, added) if part)
    return parts._replace(query=whole, fragment="").geturl()


def signature_headers(
    *, secret: str, id_: str, timestamp: float, body: bytes
) -> list[tuple[str, str]]:
    """The three headers. `timestamp` (epoch s) is the time of the try, in whole seconds.

    The signed text is `<id>.<timestamp>.<body>`; a GET has an empty body. The key is the base64
    after `whsec_`, as in the specification; any other secret is used as text.
    """
    key = secret.encode()
    if secret.startswith(_SECRET_PREFIX):
        with suppress(binascii.Error):
            key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    seconds = str(int(timestamp))
    signed = b".".join((id_.encode(), seconds.encode(), body))
    digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return [
        ("webhook-id", id_),
        ("webhook-timestamp", seconds),
        ("webhook-signature", f"v1,{digest}"),
    ]
