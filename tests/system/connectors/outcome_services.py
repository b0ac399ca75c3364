"""Customers whose services answer, decline, fail and hang, and the outcome of each call."""

import ssl
from datetime import UTC, datetime
from typing import Any

import trustme

from tests.servers.http_service import (
    CONTENT,
    Answer,
    HttpService,
    ReceivedRequest,
    content,
    endless,
    hanging,
    hanging_up,
    replying,
    resetting,
    writing,
)
from tests.system.connectors.customers import (
    SECRET_KEY,
    Customers,
)
from tests.system.world import World

DEVICES = 4  # below what opens a breaker, with three tries each
SIGNING_SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="
SETTINGS = {
    "SECRET_KEY": SECRET_KEY,
    "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    "CONNECTOR_CALL_TIMEOUT": "0.6",
}


def first_busy_then_content() -> Answer:
    """429 with a Retry-After to each call's first try."""
    seen: set[str] = set()

    async def answer(received: ReceivedRequest, writer: Any) -> None:
        first = received.id not in seen
        seen.add(received.id)
        await (replying(429, retry_after="1") if first else content())(received, writer)

    return answer


def answers(elsewhere: str) -> dict[str, Answer]:
    """Services by company. Each is called by POST unless stated otherwise."""
    return {
        "content": content(),
        "defaults": replying(200, {"format": "url", "url": "https://example.org/a"}),
        "slow": content(after=0.3),
        "declines": replying(204),
        "refuses": replying(200, {"send": False}),
        "busy": first_busy_then_content(),
        "fails": replying(500),
        "unavailable": replying(503),
        "redirects": replying(302, location=elsewhere),
        "endless": endless,
        "large": replying(200, CONTENT | {"template": "x" * 65_536}),
        "list": replying(200, []),
        "numbers": replying(200, CONTENT | {"title": 5}),
        "pdf": replying(200, {"format": "pdf", "pdf": "x"}),
        "nothing": replying(200, b""),
        "packed": replying(200, CONTENT, content_encoding="gzip"),
        "resets": resetting,
        "hangs-up": hanging_up,
        "babbles": writing(b"220 mail.example.org ESMTP\r\n"),
        "drips": writing(b"HTTP/1.1 200 OK\r\n", *[b"a: b\r\n"] * 100, pause=0.1),
        "hangs": hanging,
    }


REASONS = {
    "busy": None,
    "fails": "connector_status",
    "unavailable": "connector_status",
    "redirects": "connector_status",
    "endless": "connector_reply_too_large",
    "large": "connector_reply_too_large",
    "list": "connector_reply",
    "numbers": "connector_reply",
    "pdf": "connector_reply",
    "nothing": "connector_reply",
    "packed": "connector_reply",
    "resets": "connector_unreachable",
    "hangs-up": "connector_unreachable",
    "babbles": "connector_unreachable",
    "drips": "connector_timeout",
    "hangs": "connector_timeout",
    "bad-tls": "connector_tls",
    "no-tls": "connector_timeout",
    "private": "connector_forbidden",
    "metadata": "connector_forbidden",
    "gone": "connector_unreachable",
    "unreadable": "connector_secret",
}
TRIED_AGAIN = {
    "busy": 2,
    "unavailable": 3,
    "resets": 3,
    "hangs-up": 3,
    "babbles": 3,
    "drips": 3,
    "hangs": 3,
}
PUBLISHED = {"content", "defaults", "slow", "busy", "asked-by-get", "signed", "good-tls"}
DECLINED = {"declines", "refuses"}


def tls_context(authority: trustme.CA, name: str) -> Any:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def outcome_customers(service: HttpService, good: HttpService, bad: HttpService) -> Customers:
    customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
    for name in answers(""):
        customers.add(name, service.url(f"/{name}"))
    customers.add("asked-by-get", service.url("/asked-by-get?own=1"), method="GET", auth="get")
    customers.add(
        "signed", service.url("/signed"), secret=customers.encrypt(SIGNING_SECRET), auth="get"
    )
    customers.add("good-tls", good.url("/good-tls", host="localhost"))
    customers.add("bad-tls", bad.url("/", host="localhost"))
    customers.add("no-tls", f"https://127.0.0.1:{service.port}/content")
    customers.add("private", "http://10.255.255.1/")
    customers.add("metadata", "http://169.254.169.254/latest/meta-data")
    customers.add("gone", "http://connector.invalid/")
    customers.add("none", None)
    customers.add("unreadable", service.url("/content"), parameters="not a token")
    return customers
