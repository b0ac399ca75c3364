"""/connector/test and /connector/calls: one call that is shown safely, and the past calls."""

import asyncio
import json
import time
from typing import Any

import pytest

from catalog.models import Company
from connectors.model import CallFault, PastCall
from connectors.schedule import Breaker
from engine.connector.stores import KEPT, CallHistoryWriter
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from tests.api.harness import Bodies, Harness, Headers
from tests.api.test_tenancy import Holder, everything
from tests.servers.http_service import (
    CONTENT,
    Answer,
    ReceivedRequest,
    content,
    replying,
    resetting,
    serving,
)
from tests.servers.schema import on_sqlite

TOKEN, SECRET = 'the-"secret"-token', "whsec_c2VjcmV0LXNlY3JldA=="
PARAMETERS = json.dumps([{"key": "x-token", "value": TOKEN}])


async def store(api: Harness, owner: Headers, bodies: Bodies, url: str, **fields: Any) -> None:
    """The company's connector."""
    body = bodies.connector(url=url, parameters=PARAMETERS, secret=SECRET, **fields)
    saved = await api.call("PUT", "/connector", owner, body)
    assert saved.status_code == 200, saved.text


async def tried(api: Harness, owner: Headers) -> dict[str, Any]:
    """The answer of the trial, which never contains a secret."""
    trial = await api.call("POST", "/connector/test", owner)
    assert trial.status_code == 200, trial.text
    text = json.dumps(trial.json(), ensure_ascii=False)
    assert TOKEN not in text
    assert "secret" not in text.replace("webhook-signature", "")
    return dict(trial.json())


async def test_the_request_and_the_reply_are_shown(api: Harness, owner: Headers, bodies: Bodies):
    async with serving(content()) as service:
        await store(api, owner, bodies, service.url("/offers"))
        trial = await tried(api, owner)
        (received,) = service.received
    assert received.headers["x-token"] == TOKEN
    sent = {pair["key"]: pair["value"] for pair in trial["request"]["headers"]}
    assert (sent["x-token"], sent["webhook-signature"]) == ("*****", "*****")
    assert json.loads(trial["request"]["body"]) == received.json
    assert received.json["device"]["test"] is True
    assert json.loads(trial["reply"]["body"]) == CONTENT
    notification = {"title": "T", "push": "P", "format": "template", "content": "<p>hello</p>"}
    assert trial["notification"] == notification


@on_sqlite
@pytest.mark.parametrize(
    ("answer", "outcome", "status"),
    [
        (replying(204), "declined", 204),
        (replying(503, {"you sent": TOKEN}), CallFault.STATUS, 503),
        (replying(200, f"<p>{TOKEN}</p>".encode(), x_echo=TOKEN), CallFault.REPLY, 200),
        (replying(200, CONTENT | {"template": TOKEN}), "published", 200),
        (resetting, CallFault.UNREACHABLE, None),
    ],
)
async def test_each_outcome(
    api: Harness, owner: Headers, bodies: Bodies, answer: Answer, outcome: str, status: int | None
):
    async with serving(answer) as service:
        await store(api, owner, bodies, service.url())
        trial = await tried(api, owner)
        assert len(service.received) == 1, "nothing is tried again"
    assert (trial["outcome"], (trial["reply"] or {}).get("status")) == (outcome, status)
    assert (trial["notification"] is None) == (outcome != "published")


async def test_a_long_reply_that_repeats_the_url(api: Harness, owner: Headers, bodies: Bodies):
    async def repeat(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        body = received.target.encode() + b"x" * 60_000
        await replying(404, body, location=received.target)(received, writer)

    async with serving(repeat) as service:
        await store(api, owner, bodies, service.url(), method="GET", auth="get")
        trial = await tried(api, owner)
        (received,) = service.received
    assert ("x-token", TOKEN) in received.query
    assert "x-token=*****" in trial["reply"]["body"]
    assert trial["reply"]["body"].endswith("more characters)")


async def test_one_test_at_a_time(api: Harness, owner: Headers, bodies: Bodies):
    called, answered = asyncio.Event(), asyncio.Event()

    async def hold(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        called.set()
        await answered.wait()
        await replying(204)(received, writer)

    async with serving(hold) as service:
        await store(api, owner, bodies, service.url())
        first = asyncio.create_task(tried(api, owner))
        await called.wait()
        second = await api.call("POST", "/connector/test", owner)
        assert (second.status_code, second.headers["retry-after"]) == (429, "1")
        answered.set()
        assert (await first)["outcome"] == "declined"


async def test_nothing_is_kept_and_only_ones_own_records_are_sent(api: Harness, bodies: Bodies):
    ours, theirs = [await Holder(api, await api.account()).fill(bodies) for _ in range(2)]
    async with api.database.write.begin() as session:  # a name that is another company's id
        number = await api.company_of(ours.headers)
        company = await session.get_one(Company, await api.company_of(theirs.headers))
        company.name = str(number)
    async with serving(content()) as service, serving(content()) as other:
        for holder, to in ((theirs, other), (ours, service)):
            path = f"/lieu/{holder.ids['region']}/campaign/{holder.ids['campaign']}"
            beacons = [{"id": holder.ids["beacon"]}]
            body = bodies.campaign(format="connector", url=None, beacons=beacons)
            assert (await api.call("PUT", path, holder.headers, body)).status_code == 200
            await store(api, holder.headers, bodies, to.url())
        before = await everything(api)
        await tried(api, ours.headers)
        (received,) = service.received
        assert other.received == []
    assert received.json["campaign"]["id"] == ours.ids["campaign"]
    assert received.json["beacon"]["id"] == ours.ids["beacon"]
    assert await everything(api) == before
    closed = {"state": "closed", "calls": 0, "failures": 0, "seconds": 0.0}
    past = await api.read("/connector/calls", ours.headers)
    assert past == {"breaker": closed, "calls": []}


def past(number: int) -> PastCall:
    at = 1_795_169_000.0 + number
    return PastCall(at, f"call {number}", 7, "connector_timeout", "late", None, 0.04123, 3)


async def test_past_calls_and_the_breaker(api: Harness, owner: Headers, settings: Settings):
    """As the role writes them."""
    writer = CallHistoryWriter(
        redis=api.stores.redis, prefix=settings.redis_prefix, deadline=5.0, metrics=Metrics()
    )
    ours, other = await api.company_of(owner), await api.account()
    for company, number in ((ours, 1), (ours, 2), (await api.company_of(other), 3)):
        writer.add(company, past(number))
    for number in range(90):
        writer.add(ours + 100, past(number))
    breaker = Breaker(pause=60.0)
    for _ in range(20):
        breaker.end(True, decides=breaker.begin(), now=time.time())
    writer.add_breaker(ours, breaker)
    await writer.write()
    assert await api.stores.redis.llen(f"{settings.redis_prefix}calls:{ours + 100}") == KEPT
    history = await api.read("/connector/calls", owner)
    newest, oldest = history["calls"]
    shown = {"campaign_id": 7, "outcome": "connector_timeout", "detail": "late", "status": None}
    shown |= {"id": "call 2", "create_on": "2026-11-20T10:03:22+0000", "seconds": 0.041, "tries": 3}
    assert (newest, oldest["id"]) == (shown, "call 1")
    assert 0 < history["breaker"].pop("seconds") <= 60.0
    assert history["breaker"] == {"state": "open", "calls": 0, "failures": 0}
    theirs = await api.read("/connector/calls", other)
    assert [call["id"] for call in theirs["calls"]] == ["call 3"]
    assert theirs["breaker"]["state"] == "closed"
