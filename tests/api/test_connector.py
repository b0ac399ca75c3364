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
from engine.process.lifecycle import cancel
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
from tests.servers.waiting import eventually

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
    assert (trial["outcome"], trial["detail"]) == ("published", "")
    assert 0 < trial["seconds"] < 60
    sent = {pair["key"]: pair["value"] for pair in trial["request"]["headers"]}
    assert trial["request"]["url"] == service.url("/offers")
    assert (sent["x-token"], sent["webhook-signature"]) == ("*****", "*****")
    assert json.loads(trial["request"]["body"]) == received.json
    assert received.json["device"]["test"] is True
    assert trial["reply"]["status"] == 200
    assert json.loads(trial["reply"]["body"]) == CONTENT
    notification = {"title": "T", "push": "P", "format": "template", "content": "<p>hello</p>"}
    assert trial["notification"] == notification


@pytest.mark.parametrize(
    ("answer", "outcome", "status"),
    [
        (replying(204), "declined", 204),
        (replying(503, {"you sent": TOKEN}), CallFault.STATUS, 503),
        (replying(200, f"<p>{TOKEN}</p>".encode(), x_echo=TOKEN), CallFault.REPLY, 200),
        (replying(200, CONTENT | {"template": TOKEN}), "published", 200),
        (replying(200, b'{"title": "\\ud800"}'), CallFault.REPLY, 200),
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


async def test_one_at_a_time(api: Harness, owner: Headers, bodies: Bodies):
    gate = asyncio.Event()

    async def gated(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await content()(received, writer)

    refused = await api.call("POST", "/connector/test", owner)
    assert (refused.status_code, refused.json()["message"][:17]) == (404, "no such connector")
    async with serving(gated) as service:
        await store(api, owner, bodies, service.url())
        first = asyncio.create_task(api.call("POST", "/connector/test", owner))
        await eventually(lambda: len(service.received) == 1, what="the call under way")
        again = await api.call("POST", "/connector/test", owner)
        assert (again.status_code, again.headers["retry-after"]) == (429, "1")
        gate.set()
        assert (await first).status_code == 200
        assert (await tried(api, owner))["outcome"] == "published"


def past(number: int, **fields: Any) -> PastCall:
    values: dict[str, Any] = {"outcome": "published", "detail": "", "status": 200, "tries": 1}
    values |= {"at": 1_795_169_000.0 + number, "campaign": 7, "seconds": 0.04123}
    return PastCall(id=f"call {number}", **values | fields)


async def test_the_calls_of_the_company_newest_first(
    api: Harness, owner: Headers, settings: Settings
):
    """As the role writes them: collected calls are written when it stops."""
    calls_made = CallHistoryWriter(
        redis=api.stores.redis, prefix=settings.redis_prefix, deadline=5.0, metrics=Metrics()
    )
    running = asyncio.create_task(calls_made.run())
    await asyncio.sleep(0)
    detail = "no reply in time; 3 tries"
    failed = past(2, outcome="connector_timeout", detail=detail, status=None, tries=3)
    ours, other = await api.company_of(owner), await api.account()
    calls_made.add(ours, past(1))
    calls_made.add(ours, failed)
    calls_made.add(await api.company_of(other), past(3))
    for number in range(90):
        calls_made.add(ours + 100, past(number))
    await cancel([running])
    key = f"{settings.redis_prefix}calls:{ours + 100}"
    assert await api.stores.redis.llen(key) == KEPT
    assert 0 < await api.stores.redis.ttl(key) <= 24 * 3600
    newest, oldest = (await api.read("/connector/calls", owner))["calls"]
    assert newest == {
        "id": "call 2",
        "create_on": "2026-11-20T10:03:22+0000",
        "campaign_id": 7,
        "outcome": "connector_timeout",
        "detail": detail,
        "status": None,
        "seconds": 0.041,
        "tries": 3,
    }
    assert (oldest["id"], oldest["status"]) == ("call 1", 200)
    theirs = (await api.read("/connector/calls", other))["calls"]
    assert [call["id"] for call in theirs] == ["call 3"]


async def test_the_breaker(api: Harness, owner: Headers, settings: Settings):
    company_id = await api.company_of(owner)
    writer = CallHistoryWriter(
        redis=api.stores.redis, prefix=settings.redis_prefix, deadline=5.0, metrics=Metrics()
    )
    breaker, found = Breaker(pause=60.0), []
    for outcomes in ("0110", "1" * 8):
        for each in outcomes:
            breaker.end(each == "1", decides=breaker.begin(), now=time.time())
        writer.add_breaker(company_id, breaker)
        await writer.write()
        found.append((await api.read("/connector/calls", owner))["breaker"])
    closed, opened = found
    assert closed == {"state": "closed", "calls": 4, "failures": 2, "seconds": 0.0}
    assert 0 < opened.pop("seconds") <= 60.0
    assert opened == {"state": "open", "calls": 0, "failures": 0}
