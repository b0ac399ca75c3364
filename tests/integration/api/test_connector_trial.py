"""POST /connector/test: one call to the company's own service, and no more, shown safely."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from catalog.models import Company
from connectors.model import CallFault
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers
from tests.integration.api.test_companies import Holder, everything
from tests.servers.http_service import (
    CONTENT,
    Answer,
    HttpService,
    ReceivedRequest,
    content,
    replying,
    resetting,
    serving,
)
from tests.servers.waiting import eventually

TOKEN, SECRET = 'the-"secret"-token', "whsec_c2VjcmV0LXNlY3JldA=="
PARAMETERS = json.dumps([{"key": "x-token", "value": TOKEN}])


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


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
    assert received.json["device"] == {
        "udid": "sample-device",
        "id_connector": None,
        "name": "android",
        "version": "14",
        "model": "sample",
        "test": True,
    }
    assert trial["reply"]["status"] == 200
    assert json.loads(trial["reply"]["body"]) == CONTENT
    assert trial["notification"] == {
        "title": "T",
        "push": "P",
        "format": "template",
        "content": "<p>hello</p>",
    }


@pytest.mark.parametrize(
    ("answer", "outcome", "status"),
    [
        (replying(204), "declined", 204),
        (replying(503, {"you sent": TOKEN}), CallFault.STATUS, 503),
        (replying(200, f"<p>{TOKEN}</p>".encode(), x_echo=TOKEN), CallFault.REPLY, 200),
        (replying(200, CONTENT | {"template": TOKEN}), "published", 200),
        (replying(200, b"\xff" * 9), CallFault.REPLY, 200),
        (replying(200, b'{"title": "\\ud800"}'), CallFault.REPLY, 200),
        (replying(200, b"x" * 70_000), CallFault.REPLY_TOO_LARGE, None),
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


async def test_a_service_that_repeats_the_url(api: Harness, owner: Headers, bodies: Bodies):
    async def repeat(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await replying(404, received.target.encode(), location=received.target)(received, writer)

    async with serving(repeat) as service:
        await store(api, owner, bodies, service.url(), method="GET", auth="get")
        trial = await tried(api, owner)
        (received,) = service.received
    assert ("x-token", TOKEN) in received.query
    assert "secret" not in json.dumps(trial)
    assert "x-token=*****" in trial["reply"]["body"]


async def test_the_shown_reply_is_bounded(api: Harness, owner: Headers, bodies: Bodies):
    many: dict[str, Any] = {f"x_{number}": "y" * 300 for number in range(150)}
    long = CONTENT | {"template": "é" * 8_000, "title": "t" * 9_000}
    async with serving(replying(200, long, **many)) as service:
        await store(api, owner, bodies, service.url())
        trial = await tried(api, owner)
    assert trial["outcome"] == "published"
    assert len(trial["reply"]["headers"]) == 100
    assert len(trial["reply"]["body"]) < 4_100
    assert max(len(text) for text in trial["notification"].values()) < 4_100


async def test_nothing_is_kept_and_no_one_else_is_called(api: Harness, bodies: Bodies):
    ours = await Holder(api, await api.account()).fill(bodies)
    theirs = await Holder(api, await api.account()).fill(bodies)
    async with serving(content()) as service, serving(content()) as other:
        await store(api, ours.headers, bodies, service.url())
        await store(api, theirs.headers, bodies, other.url())
        before = await everything(api)
        assert (await tried(api, ours.headers))["outcome"] == "published"
        assert [len(service.received), len(other.received)] == [1, 0]
    assert await everything(api) == before
    past = (await api.call("GET", "/connector/calls", ours.headers)).json()
    assert past["calls"] == []
    assert past["breaker"]["calls"] == 0


async def test_only_a_campaign_of_the_company_can_be_tested(api: Harness, bodies: Bodies):
    ours = await Holder(api, await api.account()).fill(bodies)
    theirs = await Holder(api, await api.account()).fill(bodies)
    for holder in (theirs, ours):
        path = f"/lieu/{holder.ids['region']}/campaign/{holder.ids['campaign']}"
        beacons = [{"id": holder.ids["beacon"]}]
        body = bodies.campaign(format="connector", url=None, beacons=beacons)
        assert (await api.call("PUT", path, holder.headers, body)).status_code == 200
    async with serving(content()) as service:
        await store(api, ours.headers, bodies, service.url())
        await tried(api, ours.headers)
        (received,) = service.received
    assert received.json["campaign"]["id"] == ours.ids["campaign"]
    assert received.json["beacon"]["id"] == ours.ids["beacon"]


async def test_without_a_connector(api: Harness, owner: Headers, bodies: Bodies):
    other = await api.account()
    await store(api, other, bodies, "http://127.0.0.1:9/")
    refused = await api.call("POST", "/connector/test", owner)
    assert refused.status_code == 404
    assert refused.json()["message"] == "no such connector: it has not been set up"


async def test_a_company_whose_name_is_anothers_id(api: Harness, bodies: Bodies):
    """The company is found by its id, not by a name."""
    ours = await api.account()
    number = (await api.call("GET", "/profile", ours)).json()["company"]["id"]
    async with serving(content()) as service, serving(content()) as other:
        await store(api, ours, bodies, service.url())
        theirs = await api.account()
        await rename(api, theirs, str(number))
        await store(api, theirs, bodies, other.url())
        await tried(api, ours)
        assert [len(service.received), len(other.received)] == [1, 0]


async def rename(api: Harness, owner: Headers, name: str) -> None:
    """The company of an account."""
    number = (await api.call("GET", "/profile", owner)).json()["company"]["id"]
    async with api.database.write.begin() as session:
        company = await session.get(Company, number)
        assert company is not None
        company.name = name


class Gated:
    """A service that answers when the test permits it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        await content()(received, writer)


@pytest.fixture
async def gated() -> AsyncIterator[tuple[Gated, HttpService]]:
    gate = Gated()
    async with serving(gate) as service:
        yield gate, service


async def test_one_at_a_time_and_a_few_in_all(
    api: Harness, bodies: Bodies, gated: tuple[Gated, HttpService]
):
    gate, service = gated
    holders = [await api.account() for _ in range(9)]
    for holder in holders:
        await store(api, holder, bodies, service.url())
    *first, last = holders
    under_way = [asyncio.create_task(api.call("POST", "/connector/test", one)) for one in first]
    await eventually(lambda: len(service.received) == len(first), what="eight calls under way")
    again = await api.call("POST", "/connector/test", first[0])
    assert (again.status_code, again.headers["retry-after"]) == (429, "1")
    assert again.json()["message"] == "the company's connector is being tested already"
    crowded = await api.call("POST", "/connector/test", last)
    assert (crowded.status_code, crowded.headers["retry-after"]) == (503, "1")
    assert len(service.received) == len(first)
    gate.open.set()
    answered = await asyncio.gather(*under_way)
    assert {one.status_code for one in answered} == {200}
    assert (await tried(api, last))["outcome"] == "published"
