"""An SRE's first hour: `check`, the roles one by one, probes and metrics, Kafka down and
back, a rolling restart, dead letters of a service that was down, the index."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.http_service import HttpService, content, replying
from tests.servers.kafka.server import KafkaServer
from tests.servers.process import free_ports
from tests.servers.waiting import eventually
from tests.system.rig import Command
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.walks.holder import Holder, beacon, campaign
from tests.system.walks.user import SECRET_KEY, User, user

ROLES = ("trigger", "connector", "recorder")
VISITORS = {"first", *(f"{when} {role}" for role in ROLES for when in ("before", "after"))}
PASSWORD = "a password of the company"


@pytest.fixture
def sre(
    tmp_path: Path,
    own_kafka: KafkaServer,
    redis_url: str,
    postgres_url: str,
    topic_prefix: str,
) -> Iterator[User]:
    servers = (own_kafka.bootstrap_servers, redis_url, postgres_url)
    ports = {"API_PORT": str(free_ports()), "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
    with user(tmp_path, topic_prefix, *servers, **ports) as made:
        yield made


async def test_the_hour(sre: User, own_kafka: KafkaServer, topic_prefix: str) -> None:
    set_up(sre)
    topics = TopicSet(own_kafka.bootstrap_servers, topic_prefix, f"{topic_prefix}trigger")
    service = HttpService(replying(404))  # not tried again; fewer failures than open the breaker
    async with Holder(await sre.serve()) as holder, service.running():
        await add_a_company(holder, service)
        roles = {role: sre.start("run", "--role", role) for role in ROLES}
        for command in roles.values():
            await command.until_ready()
        await probes_and_metrics(roles["trigger"], topics)
        await kafka_down_and_back(roles["trigger"], own_kafka)
        await rolling_restart(sre, roles, topics)
        await dead_letters_of_a_service_that_was_down(sre, holder, service, topics)
        built = "the index is built: 1 beacons, 0 geofences, 0 tags, 2 campaigns, 1 connectors"
        assert built in sre("index", "rebuild").splitlines()
        await counted_right(sre, holder)
    for command in roles.values():
        await command.stop()
        assert SECRET_KEY not in command.output


def set_up(sre: User) -> None:
    assert sre("migrate").splitlines()[-1] == "the database is up to date"
    create = ("account", "create", "owner@pier.example", "--company", "Pier", "--create-company")
    sre(*create, "--password-stdin", given=f"{PASSWORD}\n")
    assert {row["state"] for row in sre.rows("check")} <= {"ok", "warning"}


async def add_a_company(holder: Holder, service: HttpService) -> None:
    """A company whose service is not running yet."""
    await holder.sign_in("owner@pier.example", PASSWORD)
    venue = (await holder.post("/region", {"name": "Pier", "address": "x", "active": 1}))["id"]
    made = await holder.post(f"/region/{venue}/beacon", beacon(minor=1))
    for form in ("url", "connector"):
        fields = campaign(form, beacons=[{"id": made["id"]}])
        await holder.post(f"/lieu/{venue}/campaign", fields)
    fields = {"name": "Offers", "method": "POST", "auth": "header", "parameters": "[]"}
    await holder.call("PUT", "/connector", fields | {"url": service.url("/offer")})


async def walk_in(topics: TopicSet, udid: str) -> None:
    """Publish a detection of the beacon by a device."""
    detection = {**beacon(minor=1), "proximity": "near", "device": {"udid": udid}}
    await topics.publish([Message(0, udid.encode(), json.dumps(detection).encode())])


async def until_sent(topics: TopicSet, name: str, udids: set[str]) -> None:
    """Wait for the campaign's notification to each of the devices; there is one to each."""

    async def is_sent() -> bool:
        found = [json.loads(record.value or b"") for record in await topics.read("notifications")]
        sent = [each["device"]["udid"] for each in found if each["campaign"]["name"] == name]
        return sorted(sent) == sorted(udids)

    await eventually(is_sent, what=f"{name} is sent")


async def probes_and_metrics(trigger: Command, topics: TopicSet) -> None:
    await walk_in(topics, "first")
    await until_sent(topics, "by url", {"first"})
    assert (await trigger.get("/healthz"))[0] == 200
    assert all((await trigger.checks()).values())
    _, metrics = await trigger.get("/metrics")
    assert 'proximity_detections_total{reason="granted"} 1.0' in metrics
    assert 'proximity_notifications_total{format="url"} 1.0' in metrics
    assert "proximity_connector_handovers_total 1.0" in metrics
    assert "\nprocess_resident_memory_bytes " in metrics


async def kafka_down_and_back(trigger: Command, kafka: KafkaServer) -> None:
    await asyncio.to_thread(kafka.stop)

    async def down() -> bool:
        status, body = await trigger.get("/readyz")
        return status == 503 and json.loads(body)["checks"]["kafka"] is False

    await eventually(down, what="Kafka is reported as down")
    # Not a reason to restart it.
    assert (await trigger.get("/healthz"))[0] == 200
    await asyncio.to_thread(kafka.start)
    await trigger.until_ready()


async def rolling_restart(sre: User, roles: dict[str, Command], topics: TopicSet) -> None:
    """Restart the processes one after the other, under load."""
    for role in ROLES:
        await walk_in(topics, f"before {role}")
        new = sre.start("run", "--role", role)
        await roles[role].stop()
        await walk_in(topics, f"after {role}")
        await new.until_ready()
        roles[role] = new
    await until_sent(topics, "by url", VISITORS)


async def dead_letters_of_a_service_that_was_down(
    sre: User, holder: Holder, service: HttpService, topics: TopicSet
) -> None:
    """Calls that failed are replayed once the service answers as it should."""

    async def failed() -> bool:
        return await topics.count("dead-letters") >= len(VISITORS)

    await eventually(failed, what="every call has failed")
    printed = sre("dead-letters", "list")
    assert printed.splitlines()[-1] == f"{len(VISITORS)} dead letters: 7 connector_status"
    service.answer = content(title="Only for you")
    trial = await holder.call("POST", "/connector/test")
    assert (trial["outcome"], trial["notification"]["title"]) == ("published", "Only for you")
    put = await asyncio.to_thread(sre, "dead-letters", "replay")
    assert put == f"{len(VISITORS)} dead letters put back\n"
    await until_sent(topics, "by connector", VISITORS)
    again = await asyncio.to_thread(sre, "dead-letters", "replay")
    assert again == "0 dead letters put back\n"


async def counted_right(sre: User, holder: Holder) -> None:
    """SQL and the sums in Redis; and every role has reported that it is up to date."""
    both: list[dict[str, int]] = []

    async def counted() -> bool:
        hours = await holder.get("/statistics/hours")
        both[:] = [
            {name: sum(each[name] for each in lines) for name in ("detections", "notifications")}
            for lines in (await holder.get("/statistics?kind=venue"), hours)
        ]
        exact = {"detections": len(VISITORS), "notifications": 2 * len(VISITORS)}
        return both == [exact, exact]

    async def all_keep_up() -> bool:
        found = await holder.get("/realtime/roles")
        return {each["role"]: each["state"] for each in found} == dict.fromkeys(ROLES, "up_to_date")

    try:
        await eventually(counted, what="SQL and Redis have counted")
    except AssertionError as error:
        raise AssertionError(f"SQL and Redis have counted: {both}") from error
    await eventually(all_keep_up, what="every role has reported that it is up to date")
    (granted,) = await holder.get("/statistics/reasons")
    assert (granted["reason"], granted["count"]) == ("granted", 2 * len(VISITORS))
    assert {each["name"] for each in granted["campaigns"]} == {"by url", "by connector"}
    assert sre("verify").splitlines()[-1] == "no differences"
