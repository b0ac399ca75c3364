"""An account holder's first hour: docs/interface.md as it stands, a client generated from the
document, and a day's work from the first session to the last, with notifications on Kafka."""

import asyncio
import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from aiopenapi3 import OpenAPI

from tests.api.process import EMAIL, PASSWORD, ApiProcess
from tests.servers.http_service import HttpService, content, serving
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually
from tests.system.rig import Rig
from tests.system.walks.holder import Holder, beacon, campaign
from tests.system.walks.user import ROOT, User, user

PAGE = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VARIES = re.compile(r"<[a-z ]+>")  # a text or a number
_REQUEST = re.compile(r'call (?:-X (\w+) )?"?\$BASE(/[^\s"?]*)\S*( -d)?|\$BASE/(auth)')
BASE = "BASE=http://127.0.0.1:8000/v2"
MARK = "=== next answer ==="
COMPANY = "Harbour Mall"
# (A minute by itself, with the servers' start; the machine may be busy.)
pytestmark = pytest.mark.timeout(480)


class Step(NamedTuple):
    """A command of the page, and the answer that follows it, if one does."""

    command: str
    answer: str | None


def steps() -> Iterator[Step]:
    """The commands of the page, except those that start servers."""
    blocks = [match.groups() for match in _BLOCK.finditer(PAGE)]
    for place, (kind, text) in enumerate(blocks):
        if kind == "sh" and not text.startswith("proximity "):
            after = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
            yield Step(text, after[1] if after[0] == "json" else None)


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in bash, to its end."""
    return subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


def operations_of(step: Step) -> Iterator[tuple[str, str]]:
    """Method and path of each request, with * for an id."""
    for method, path, data, auth in _REQUEST.findall(step.command):
        if auth:
            yield "POST", "/auth"
        else:
            yield method or ("POST" if data else "GET"), re.sub(r"/\d+", "/*", path)


def known(answer: Any, shown: Any) -> Any:
    """The answer, with the page's values for fields that differ each time."""
    if isinstance(shown, str) and _VARIES.fullmatch(shown) and isinstance(answer, str | float):
        return shown
    if isinstance(answer, dict) and isinstance(shown, dict):
        return {name: known(value, shown.get(name)) for name, value in answer.items()}
    if isinstance(answer, list) and isinstance(shown, list) and len(answer) == len(shown):
        return [known(one, other) for one, other in zip(answer, shown, strict=True)]
    return answer


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
        create = ("account", "create", EMAIL, "--company", COMPANY, "--create-company")
        more = ("--permission", "2", "--password-stdin")
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
        await holder.sign_in(EMAIL, PASSWORD)
        venue = await set_up_a_venue(holder)
        await set_up_a_connector(holder, customers)
        await engine.until_ready()
        await see_it_fire(operator, holder, customers)
        await read_the_figures(holder, venue)
        await see_that_it_keeps_up(holder, venue)
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
