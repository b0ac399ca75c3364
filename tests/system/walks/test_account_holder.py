"""An account holder's first hour: docs/interface.md as it stands, a client generated from the
document, and a day's work from the first session to the last, with notifications on Kafka."""

import asyncio
import csv
import io
import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiopenapi3 import OpenAPI

from tests.api.process import EMAIL, PASSWORD, ApiProcess
from tests.servers.http_service import HttpService, content, serving
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually
from tests.system.rig import Rig
from tests.system.walks.holder import Holder, beacon, campaign
from tests.system.walks.page import (
    BASE,
    MARK,
    Step,
    known,
    operations_of,
    run_script,
    steps,
)
from tests.system.walks.user import ROOT, User, user

COMPANY = "Harbour Mall"
# (A minute by itself, with the servers' start; the machine may be busy.)
pytestmark = pytest.mark.timeout(480)


@pytest.fixture
async def walked(database_url: str, processes: Rig, tmp_path: Path) -> list[tuple[Step, Any]]:
    """Every step that shows an answer, and the answer that it got."""
    await make_schema(database_url)
    load = processes.start("catalog", "load", str(ROOT / "docs/examples/catalog.json"))
    assert await load.ended() == 0
    served = await ApiProcess(processes).until_ready()
    script = [f'cd "{tmp_path}"']
    for step in steps():
        script.append(step.command.replace(BASE, f"BASE={served.url}/v2"))
        if step.answer is not None:
            script.append(f"echo; echo '{MARK}'")
    done = await asyncio.to_thread(run_script, "\n".join(script))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(text) for text in done.stdout.split(MARK)[:-1]]
    return list(zip([step for step in steps() if step.answer is not None], answers, strict=True))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_answers_are_those_of_the_page(walked: list[tuple[Step, Any]]):
    assert len(walked) > 40
    for step, answer in walked:
        assert step.answer is not None
        assert known(answer, json.loads(step.answer)) == json.loads(step.answer), step.command


async def test_every_operation_is_walked_through(served: ApiProcess):
    async with httpx.AsyncClient(base_url=served.url) as client:
        document = (await client.get("/openapi.json")).json()
    operations = {
        (method.upper(), re.sub(r"\{\w+\}", "*", path.removeprefix("/v2")))
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert {operation for step in steps() for operation in operations_of(step)} == operations


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_generated_client_signs_in_and_manages_a_venue(served: ApiProcess) -> None:
    async with httpx.AsyncClient() as http:
        document = (await http.get(f"{served.url}/openapi.json")).text
    client = OpenAPI.loads(f"{served.url}/openapi.json", document)
    call = client._

    envelope = await call.authenticate(data={"email": EMAIL, "password": PASSWORD})
    client.authenticate(key=EMAIL, token=envelope.session.token)
    venue = await call.create_venue(data={"name": "Pier", "address": "2 Quai", "active": True})
    beacon = {
        "name": "Entrance",
        "uuid": "f7826da6-4fa2-4e98-8024-bc5b71e0893e",
        "major": 1,
        "minor": 1,
        "active": True,
        "proximity": "near",
    }
    made = await call.create_beacon(parameters={"id": venue.id}, data=beacon)
    listed = await call.list_beacons(parameters={"id": venue.id})
    assert [each.id for each in listed] == [made.id]
    assert str(listed[0].uuid) == beacon["uuid"]


@pytest.fixture
def operator(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str, postgres_url: str, topic_prefix: str
) -> Iterator[User]:
    """The operator of the account holder's servers."""
    opened = {"CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
    with user(tmp_path, topic_prefix, kafka_bootstrap, redis_url, postgres_url, **opened) as made:
        made("migrate")
        for email, company, level in (
            (EMAIL, COMPANY, "2"),
            ("guard@harbour.example", COMPANY, "1"),
            ("owner@other.example", "Other Mall", "2"),
        ):
            create = ("account", "create", email, "--company", company, "--create-company")
            more = ("--permission", level, "--password-stdin")
            assert "can sign in for" in made(*create, *more, given=f"{PASSWORD}\n")
        yield made


@pytest.fixture
async def customers() -> AsyncIterator[HttpService]:
    """The company's own web service."""
    async with serving(content(title="Just for you", push="Ten per cent")) as service:
        yield service


async def test_a_day_of_an_account_holder(operator: User, customers: HttpService) -> None:
    engine = operator.start("run")
    async with Holder(await operator.serve()) as holder:
        assert await holder.sign_in("owner@harbour.example", "wrong", status=404) == {
            "status": "error",
            "error_message": "no user matches",
            "code": 404,
        }
        await holder.sign_in(EMAIL, PASSWORD)
        venue = await set_up_a_venue(holder)
        await set_up_a_connector(holder, customers)
        await engine.until_ready()
        await see_it_fire(operator, holder, customers)
        await read_the_figures(holder, venue)
        await see_that_it_keeps_up(holder, venue)
        await forget_the_visitor(holder)
        await read_who_changed_what(holder)
        await others_are_refused(holder, venue)
        await leave(holder)
    await engine.stop()


async def set_up_a_venue(holder: Holder) -> int:
    place = {"name": "Pier", "address": "2 Quai", "active": True, "time_zone": "Europe/Paris"}
    venue = int((await holder.post("/region", place))["id"])
    made = await holder.post(f"/region/{venue}/beacon", beacon(minor=1))
    assert await holder.get(f"/region/{venue}/beacon/{made['id']}") == made
    bounds = {"longitude": "5.37", "latitude": 43.3, "radius": 100.0, "active": 1}
    fence = await holder.post(f"/region/{venue}/geofencing", {"name": "Pier", **bounds})
    assert (fence["longitude"], fence["radius"]) == (5.37, 100)
    for form in ("url", "connector"):
        fields = campaign(form, beacons=[{"id": made["id"]}])
        assert (await holder.post(f"/lieu/{venue}/campaign", fields))["format"] == form
    app = await holder.post("/profile/application", {"name": "Harbour", "type": "ios"})
    assert app["api_key"]
    return venue


async def set_up_a_connector(holder: Holder, customers: HttpService) -> None:
    fields = {"name": "Offers", "method": "POST", "auth": "header", "url": customers.url("/offer")}
    stolen = [{"key": "Idempotency-Key", "value": "mine"}]
    refused = {"parameters": json.dumps(stolen)}
    document = await holder.call("PUT", "/connector", fields | refused, status=400)
    assert "Idempotency-Key".lower() in document["fields"]["parameters"].lower()
    key = [{"key": "x-api-key", "value": "abc"}]
    await holder.call("PUT", "/connector", fields | {"parameters": json.dumps(key)})
    trial = await holder.call("POST", "/connector/test")
    assert (trial["outcome"], trial["notification"]["title"]) == ("published", "Just for you")
    assert customers.received[-1].headers["x-api-key"] == "abc"
    assert (await holder.get("/connector/calls"))["calls"] == []


async def see_it_fire(operator: User, holder: Holder, customers: HttpService) -> None:
    detection = {**beacon(minor=1), "proximity": "near", "device": {"udid": "visitor"}}
    written = operator.write("visitor.jsonl", json.dumps(detection))
    # (In a thread: the company's service answers in this loop.)
    await asyncio.to_thread(operator, "publish", written)
    tail = ("notifications", "tail", "--from-beginning", "--count", "2", "--udid", "visitor")
    arrived = {
        each["campaign"]["name"]: each for each in await asyncio.to_thread(operator.rows, *tail)
    }
    assert arrived["by url"]["url"] == "https://harbour.example/today"
    assert arrived["by connector"]["title"] == "Just for you"
    assert customers.received[-1].json["device"]["udid"] == "visitor"

    async def called() -> bool:
        calls = (await holder.get("/connector/calls"))["calls"]
        return [each["outcome"] for each in calls] == ["published"]

    await eventually(called, what="the call is listed")


async def read_the_figures(holder: Holder, venue: int) -> None:
    async def counted() -> Any:
        found = await holder.get(f"/statistics?kind=venue&venue={venue}")
        return [line for line in found if line["notifications"] == 2]

    (line,) = await eventually(counted, deadline=30, what="SQL has counted")
    assert (line["name"], line["detections"], line["devices"]) == ("Pier", 1, 1)
    sheet = await holder.text("/statistics?kind=campaign", accept="text/csv")
    rows = list(csv.DictReader(io.StringIO(sheet)))
    assert {(row["name"], row["notifications"]) for row in rows} == {
        ("by url", "1"),
        ("by connector", "1"),
    }

    async def both_were_sent() -> bool:
        hours = await holder.get("/statistics/hours")
        return sum(int(hour["notifications"]) for hour in hours) == 2

    await eventually(both_were_sent, deadline=30, what="trigger and connector have added up")
    assert sum(hour["detections"] for hour in await holder.get("/statistics/hours")) == 1
    (granted,) = await holder.get("/statistics/reasons")
    assert (granted["reason"], granted["count"]) == ("granted", 2)
    assert {each["name"] for each in granted["campaigns"]} == {"by url", "by connector"}


async def see_that_it_keeps_up(holder: Holder, venue: int) -> None:
    async def all_keep_up() -> bool:
        found = await holder.get("/realtime/roles")
        return {each["role"]: each["state"] for each in found} == dict.fromkeys(
            ("trigger", "connector", "recorder"), "up_to_date"
        )

    await eventually(all_keep_up, deadline=30, what="every role has reported that it is up to date")

    async def counted() -> Any:
        return (await holder.get(f"/statistics/region/{venue}/recent"))["beacons"]

    (recent,) = await eventually(counted, deadline=30, what="the recorder has passed it on")
    assert recent["detections"] == 1


async def forget_the_visitor(holder: Holder) -> None:
    (visitor,) = await holder.get("/crm")
    held = await holder.get(f"/crm/{visitor['id']}/held")
    # (The broker of the tests keeps its topics for ever.)
    assert (held["detections"], held["kafka"]) == (1, "unbounded")
    assert held["keys"] >= 3  # two claims, the last decisions
    deletion = await holder.call("DELETE", f"/crm/{visitor['id']}")
    assert (deletion["detections"], deletion["keys"]) == (held["detections"], held["keys"])
    assert await holder.get("/crm") == []


async def read_who_changed_what(holder: Holder) -> None:
    found = await holder.get("/audit")
    kinds = {"venue", "beacon", "geofence", "campaign", "application", "connector"}
    assert {each["kind"] for each in found if each["action"] == "create"} == kinds
    assert {each["email"] for each in found} == {EMAIL}
    assert '"abc"' not in json.dumps(found)


async def others_are_refused(holder: Holder, venue: int) -> None:
    async with Holder(holder.url) as guard, Holder(holder.url) as other:
        await guard.sign_in("guard@harbour.example", PASSWORD)
        await other.sign_in("owner@other.example", PASSWORD)
        assert len(await guard.get(f"/region/{venue}/beacon")) == 1
        document = await guard.call("POST", f"/region/{venue}/beacon", beacon(minor=2), status=403)
        assert document["message"] == "needs level 2 in the permission area beacon"
        assert await other.get("/region") == []
        for figures in ("", "/hours", "/reasons"):
            assert await other.get(f"/statistics{figures}") == []
        assert await other.get("/audit") == []
        for method, path in (("GET", f"/region/{venue}"), ("DELETE", f"/region/{venue}")):
            await other.call(method, path, status=404)
        taken = await other.post("/region", {"name": "Pier", "address": "x", "active": True})
        await other.call("POST", f"/region/{taken['id']}/beacon", beacon(minor=1), status=409)


async def leave(holder: Holder) -> None:
    async with Holder(holder.url) as elsewhere:
        await elsewhere.sign_in(EMAIL, PASSWORD)
        change = {"old_password": PASSWORD, "new_password": "a longer passphrase of mine"}
        await holder.call("PUT", "/profile/password", change)
        await elsewhere.call("GET", "/profile", status=401)
        await elsewhere.sign_in(EMAIL, PASSWORD, status=404)
        await elsewhere.sign_in(EMAIL, change["new_password"])
    await holder.call("DELETE", "/auth")
    document = await holder.call("GET", "/profile", status=401)
    assert document["message"] == "no session"
