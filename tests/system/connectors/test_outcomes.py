"""A service that answers, declines, lies, fails, hangs: each outcome, each call accounted for."""

import time
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
import trustme

from catalog.redis_connection import connect_redis
from connectors.request import signature_headers
from engine.connector.stores import read_call_history
from engine.kafka.messages import parse
from engine.process.metrics import Metrics
from engine.redis.claims import ClaimRequest, Claims
from tests.servers.http_service import (
    CONTENT,
    HttpService,
    content,
    replying,
    serving,
)
from tests.system.connectors.accounts import Account, account
from tests.system.connectors.customers import (
    DELAY,
    TOKEN,
    Customers,
    by_path,
    times,
)
from tests.system.connectors.outcome_services import (
    DECLINED,
    DEVICES,
    PUBLISHED,
    REASONS,
    SETTINGS,
    SIGNING_SECRET,
    TRIED_AGAIN,
    answers,
    outcome_customers,
    tls_context,
)
from tests.system.rig import Rig, Samples
from tests.system.topics import TopicSet


@pytest.mark.timeout(150)
async def test_each_outcome(
    rig: Rig,
    topics: TopicSet,
    call_topics: TopicSet,
    redis_url: str,
    sqlite_url: str,
    tmp_path: Path,
    topic_prefix: str,
) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    ca_file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    async with (
        serving(replying(200)) as elsewhere,
        serving(by_path(answers(elsewhere.url()))) as service,
        serving(by_path({"good-tls": content()}), tls=tls_context(authority, "localhost")) as good,
        serving(content(), tls=tls_context(stranger, "localhost")) as bad,
    ):
        service.answer = by_path(
            answers(elsewhere.url()) | {"asked-by-get": content(), "signed": content()}
        )
        customers = outcome_customers(service, good, bad)
        await customers.world.save(sqlite_url)
        await topics.create()
        settings = {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
        trigger = rig.trigger(**settings)
        connector = rig.start(
            "run", "--role", "connector", **settings, CONNECTOR_CA_FILE=str(ca_file)
        )
        await trigger.until_ready()
        await connector.until_ready()
        await topics.publish(
            customer.detection(f"{name} {number}", name="android", id_connector=77)
            for number in range(DEVICES)
            for name, customer in customers.of.items()
        )
        await topics.until_done()
        await call_topics.until_done()
        samples = await connector.metrics()
        decided = (await trigger.metrics()).by("decisions", "reason")
        await connector.stop()
        await trigger.stop()
        logs = connector.output + trigger.output
    names = {customer.company.id: name for name, customer in customers.of.items()}
    accounts = await account(topics, names)
    assert decided["no_connector"] == DEVICES  # of the company that has none: no call, no letter
    _check_accounts(accounts, set(customers.of) - {"none"})
    _check_requests(service)
    assert elsewhere.received == []
    assert len(good.received) == DEVICES
    assert good.received[0].headers["host"] == f"localhost:{good.port}"
    _check_notifications(accounts)
    _check_metrics(samples, accounts)
    assert all(f'"reason": "{reason}"' in logs for reason in REASONS.values() if reason)
    assert TOKEN not in logs
    assert f":{service.port}/" not in logs
    await _check_claims(accounts, customers, redis_url, topic_prefix)
    await _check_past_calls(accounts, customers, redis_url, topic_prefix)


def _check_accounts(accounts: Account, companies: set[str]) -> None:
    assert set(accounts.calls) == companies
    assert {name: set(calls.values()) for name, calls in accounts.calls.items()} == {
        name: {1} for name in companies
    }
    assert all(len(calls) == DEVICES for calls in accounts.calls.values())
    published = {name: len(sent) for name, sent in accounts.notifications.items()}
    assert published == dict.fromkeys(PUBLISHED, DEVICES)
    assert accounts.reasons == {
        name: Counter({reason: DEVICES}) for name, reason in REASONS.items() if reason
    }
    assert {name for name in companies if accounts.declined(name)} == DECLINED
    assert PUBLISHED | DECLINED | {name for name, reason in REASONS.items() if reason} == companies


def _check_requests(service: HttpService) -> None:
    tries = {
        path: {len(at) for at in times(service, path).values()}
        for path in {received.path.strip("/") for received in service.received}
    }
    assert tries == {path: {TRIED_AGAIN.get(path, 1)} for path in tries}
    for first, second in times(service, "busy").values():
        assert second - first >= 0.99
    post = next(received for received in service.received if received.path == "/content")
    assert (post.method, post.headers["x-token"]) == ("POST", TOKEN)
    assert post.headers["user-agent"].startswith("proximity-engine/")
    body = post.json
    assert body["id"] == post.id == str(UUID(post.id))
    assert set(body) == {
        *("id", "campaign", "venue", "beacon", "proximity", "device", "detected_at"),
    }
    assert body["device"] == {
        "udid": body["device"]["udid"],
        "id_connector": 77,
        "name": "android",
        "version": None,
        "model": None,
        "test": False,
    }
    get = next(received for received in service.received if received.path == "/asked-by-get")
    assert (get.method, get.body) == ("GET", b"")
    assert [name for name, _ in get.query] == [
        *("own", "id", "campaign", "venue", "beacon", "uuid", "major", "minor"),
        *("proximity", "udid", "id_connector", "detected_at", "x-token"),
    ]
    signed = next(received for received in service.received if received.path == "/signed")
    assert signed.query == [("x-token", TOKEN)]
    assert "x-token" not in signed.headers
    shown = {name: signed.headers[name] for name in signed.headers if name.startswith("webhook-")}
    assert shown == dict(
        signature_headers(
            secret=SIGNING_SECRET,
            id_=signed.id,
            timestamp=float(signed.headers["webhook-timestamp"]),
            body=signed.body,
        )
    )


def _check_notifications(accounts: Account) -> None:
    content_ = accounts.notifications["content"][0]
    assert {name: content_[name] for name in CONTENT} == CONTENT
    default = accounts.notifications["defaults"][0]
    assert (default["title"], default["push"]) == ("defaults's!", "defaults's: é 手机")
    assert (default["format"], default["url"]) == ("url", "https://example.org/a")
    assert default["device"]["id_connector"] == 77


def _check_metrics(samples: Samples, accounts: Account) -> None:
    outcomes = samples.by("connector_calls", "outcome")
    letters = sum(accounts.reasons.values(), Counter[str]())
    retried = sum((count - 1) * DEVICES for count in TRIED_AGAIN.values())
    # A certificate that is refused, or a name that does not resolve, is tried again too.
    retried += 3 * 2 * DEVICES
    assert outcomes == {
        "published": len(PUBLISHED) * DEVICES,
        "declined": len(DECLINED) * DEVICES,
        "retried": retried,
        **letters,
    }
    assert samples.by("dead_letters", "reason") == dict(letters)
    assert samples.by("notifications", "format") == {
        "template": (len(PUBLISHED) - 1) * DEVICES,
        "url": DEVICES,
    }


async def _check_claims(
    accounts: Account, customers: Customers, redis_url: str, prefix: str
) -> None:
    """Content keeps the claim, a refusal keeps it for a minute, a failure gives it back."""
    redis = connect_redis(redis_url)
    claims = Claims(redis=redis, prefix=prefix, retain=600.0, deadline=5.0, metrics=Metrics())

    async def is_free(name: str, after: float) -> bool:
        campaign = customers.of[name].beacon.campaigns[0].record.id
        call = next(iter(accounts.calls[name]))
        at = detected[call] + after
        request = ClaimRequest(campaign, devices[call], b"another detectio", at, DELAY)
        return await claims.take([request], at) == [None]

    detected: dict[str, float] = {}
    devices: dict[str, str] = {}
    for body in accounts.bodies:
        detected[body["id"]] = parse(body["detected_at"])
        devices[body["id"]] = body["device"]["udid"]
    try:
        for name in sorted(PUBLISHED):
            assert not await is_free(name, DELAY - 2), name
        for name in sorted(DECLINED):
            assert not await is_free(name, 59), name
            assert await is_free(name, 61), name
        for name, reason in sorted(REASONS.items()):
            assert reason is None or await is_free(name, 1), name
    finally:
        await redis.aclose()


async def _check_past_calls(
    accounts: Account, customers: Customers, redis_url: str, prefix: str
) -> None:
    """Each company sees its own calls only, without data of devices and services."""
    redis = connect_redis(redis_url)
    shown = {}
    for name, customer in customers.of.items():
        company_id, now = customer.company.id, time.time()
        history = await read_call_history(redis, prefix, company_id, now=now, deadline=5.0)
        shown[name] = history.calls
    await redis.aclose()
    assert {name: {call.id for call in calls} for name, calls in shown.items()} == {
        name: set(accounts.calls.get(name, ())) for name in customers.of
    }
    outcomes = {name: {call.outcome for call in calls} for name, calls in shown.items()}
    for name in accounts.calls:
        expected = "declined" if name in DECLINED else REASONS.get(name) or "published"
        assert outcomes[name] == {expected}, name
    tries = {name: {call.tries for call in calls} for name, calls in shown.items()}
    assert {name: tries[name] for name in TRIED_AGAIN} == {n: {t} for n, t in TRIED_AGAIN.items()}
    assert tries["unreadable"] == {0}
    statuses = {name: {call.status for call in calls} for name, calls in shown.items()}
    for name, status in {
        "unavailable": 503,
        "declines": 204,
        "content": 200,
        "hangs": None,
    }.items():
        assert statuses[name] == {status}, name
    assert all(0.3 <= (call.seconds or 0) < 30 for call in shown["slow"])
    assert all(call.detail == "no reply in time; 3 tries" for call in shown["hangs"])
    words = " ".join(call.detail for calls in shown.values() for call in calls)
    assert not any(
        f"{name} {number}" in words for name in customers.of for number in range(DEVICES)
    )
    assert TOKEN not in words
