"""A service that answers, declines, lies, fails, hangs: each outcome, each call accounted for."""

import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme

from catalog.redis_connection import connect_redis
from engine.connector.stores import read_call_history
from tests.servers.http_service import (
    CONTENT,
    Answer,
    HttpService,
    ReceivedRequest,
    content,
    endless,
    hanging,
    replying,
    resetting,
    serving,
)
from tests.system.connectors.customers import (
    SETTINGS,
    TOKEN,
    Account,
    Customers,
    account,
    by_path,
)
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import World

DEVICES = 3  # below what opens a breaker, with three tries each


def first_busy_then_content() -> Answer:
    """429 with a Retry-After to each call's first try."""
    seen: set[str] = set()

    async def answer(received: ReceivedRequest, writer: Any) -> None:
        first = received.id not in seen
        seen.add(received.id)
        await (replying(429, retry_after="1") if first else content())(received, writer)

    return answer


ANSWERS = {
    "content": content(),
    "signed": content(),
    "asked-by-get": content(),
    "busy": first_busy_then_content(),
    "declines": replying(204),
    "refuses": replying(200, {"send": False}),
    "unavailable": replying(503),
    "endless": endless,
    "lies": replying(200, CONTENT | {"title": 5}),
    "resets": resetting,
    "hangs": hanging,
}
PUBLISHED = {"content", "busy", "asked-by-get", "signed"}
DECLINED = {"declines", "refuses"}
REASONS = {
    "unavailable": "connector_status",
    "endless": "connector_reply_too_large",
    "lies": "connector_reply",
    "resets": "connector_unreachable",
    "hangs": "connector_timeout",
    "bad-tls": "connector_tls",
    "private": "connector_forbidden",
    "unreadable": "connector_secret",
}


def each_customer(service: HttpService, bad: HttpService) -> Customers:
    customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
    more: dict[str, dict[str, Any]] = {
        "asked-by-get": {"method": "GET", "auth": "get"},
        "signed": {
            "secret": customers.encrypt("whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="),
            "auth": "get",
        },
    }
    for name in ANSWERS:
        customers.add(name, service.url(f"/{name}"), **more.get(name, {}))
    customers.add("bad-tls", bad.url("/", host="localhost"))
    customers.add("private", "http://10.255.255.1/")
    customers.add("none", None)
    customers.add("unreadable", service.url("/content"), parameters="not a token")
    return customers


async def test_each_outcome(
    stores: Rig, topics: TopicSet, call_topics: TopicSet, tmp_path: Path
) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    stranger.issue_cert("localhost").configure_cert(context)
    async with serving(by_path(ANSWERS)) as service, serving(content(), tls=context) as bad:
        customers = each_customer(service, bad)
        await customers.world.save(stores.environment["DATABASE_URL"])
        await topics.create()
        stores.environment |= {**SETTINGS, "CONNECTOR_CALL_TIMEOUT": "1.5"}
        trigger = stores.trigger()
        ca_file = str(tmp_path / "authority.pem")
        connector = stores.start("run", "--role", "connector", CONNECTOR_CA_FILE=ca_file)
        await trigger.until_ready()
        await connector.until_ready()
        await topics.publish(
            customer.detection(f"{name} {number}", name="android", id_connector=77)
            for number in range(DEVICES)
            for name, customer in customers.of.items()
        )
        await topics.until_done()
        await call_topics.until_done()
        outcomes = (await connector.metrics()).by("connector_calls", "outcome")
        decided = (await trigger.metrics()).by("decisions", "reason")
        await connector.stop()
        await trigger.stop()
        logs = connector.output + trigger.output
    found = await account(topics, customers)
    assert decided["no_connector"] == DEVICES  # of the company that has none: no call, no letter
    check_accounts(found, set(customers.of) - {"none"})
    assert outcomes["published"] == len(PUBLISHED) * DEVICES
    assert outcomes["declined"] == len(DECLINED) * DEVICES
    assert {outcomes[reason] for reason in REASONS.values()} == {DEVICES}
    assert TOKEN not in logs
    assert f":{service.port}/" not in logs
    await check_past_calls(found, customers, stores.environment)


def check_accounts(found: Account, companies: set[str]) -> None:
    assert {name: set(calls.values()) for name, calls in found.calls.items()} == {
        name: {1} for name in companies
    }
    assert all(len(calls) == DEVICES for calls in found.calls.values())
    published = {name: len(sent) for name, sent in found.notifications.items()}
    assert published == dict.fromkeys(PUBLISHED, DEVICES)
    reasons = {name: [reason for _, reason in letters] for name, letters in found.letters.items()}
    assert reasons == {name: [reason] * DEVICES for name, reason in REASONS.items()}
    assert {name for name in companies if found.declined(name)} == DECLINED
    assert PUBLISHED | DECLINED | REASONS.keys() == companies
    notification = found.notifications["content"][0]
    assert {name: notification[name] for name in CONTENT} == CONTENT
    assert notification["device"]["id_connector"] == 77


async def check_past_calls(
    found: Account, customers: Customers, environment: dict[str, str]
) -> None:
    """Each company sees its own calls only, without data of devices and services."""
    redis = connect_redis(environment["REDIS_URL"])
    words = ""
    for name, customer in customers.of.items():
        prefix, company = environment["REDIS_PREFIX"], customer.company.id
        shown = (await read_call_history(redis, prefix, company, now=time.time(), deadline=5)).calls
        assert {call.id for call in shown} == set(found.calls.get(name, ())), name
        expected = "declined" if name in DECLINED else REASONS.get(name, "published")
        assert {call.outcome for call in shown} <= {expected}, name
        words += " ".join(call.detail for call in shown)
    await redis.aclose()
    assert TOKEN not in words
    assert "content 0" not in words
