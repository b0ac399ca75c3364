"""An SRE's first hour: `check` before anything starts, the roles one by one, probes and metrics,
Kafka away and back, a rolling restart, dead letters of a service that was down, the index."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.acceptance.rig import Command, free_ports
from tests.acceptance.walks.holder import Holder, beacon, campaign
from tests.acceptance.walks.user import SECRET_KEY, User, user
from tests.servers.http_service import HttpService, content
from tests.servers.kafka.server import KafkaServer
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

ROLES = ("trigger", "connector", "recorder")
PASSWORD = "a password of the company"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def sre(
    tmp_path: Path,
    own_kafka: KafkaServer,
    own_redis: RedisServer,
    postgres_url: str,
    topic_prefix: str,
) -> Iterator[User]:
    servers = (own_kafka.bootstrap_servers, own_redis.url, postgres_url)
    ports = {"API_PORT": str(free_ports()), "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
    # Fewer failures than open the breaker.
    ports["CONNECTOR_TRIES"] = "1"
    with user(tmp_path, topic_prefix, *servers, **ports) as made:
        yield made


def found(sre: User, status: int) -> dict[str, tuple[str, str]]:
    """State and words of each finding of `check --json`."""
    rows = sre.rows("check", status=status)
    return {f"{row['part']} {row['what']}": (row["state"], row["told"]) for row in rows}


async def test_the_hour(
    sre: User, own_kafka: KafkaServer, own_redis: RedisServer, topic_prefix: str
) -> None:
    look_before_the_start(sre, own_redis, topic_prefix)
    set_up(sre)
    service = HttpService(content(title="Only for you"))
    service.port = free_ports()
    await add_a_company(sre, service)
    roles = {role: sre.start("run", "--role", role) for role in ROLES}
    for command in roles.values():
        await command.until_ready()
    await probes_and_metrics(sre, roles["trigger"])
    await kafka_away_and_back(roles["trigger"], own_kafka)
    await rolling_restart(sre, roles)
    await dead_letters_of_a_service_that_was_down(sre, service)
    assert re.search(
        r"^the index is built: 1 beacons, 2 campaigns, 1 connectors$",
        sre("index", "rebuild"),
        re.MULTILINE,
    )
    await counted_right(sre)
    for command in roles.values():
        await command.stop()
        assert SECRET_KEY not in command.output


def look_before_the_start(sre: User, own_redis: RedisServer, prefix: str) -> None:
    with Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory", "200mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        seen = found(sre, status=1)
        client.config_set("maxmemory-policy", "noeviction")
    assert {name for name, (state, _) in seen.items() if state == "bad"} == {
        "Redis memory",
        "SQL migrations",
    }
    assert "set noeviction" in seen["Redis memory"][1]
    missing = ("warning", "missing: `run` creates it with 6 partitions")
    assert seen[f"Kafka topic {prefix}detections"] == missing
    assert {seen[f"Kafka group {prefix}{role}"] for role in ROLES} == {("ok", "read")}
    table = sre("check", status=1)
    assert re.search(r"^bad .*run `proximity migrate`$", table, re.MULTILINE)
    assert table.splitlines()[-1] == f"proximity: 1 of {len(seen)} checks failed"


def set_up(sre: User) -> None:
    assert sre("migrate").splitlines()[-1] == "the database is up to date"
    create = ("account", "create", "owner@pier.example", "--company", "Pier", "--create-company")
    sre(*create, "--password-stdin", given=f"{PASSWORD}\n")
    assert {state for state, _ in found(sre, status=0).values()} <= {"ok", "warning"}
    shown = {row["name"]: row for row in sre.rows("settings")}
    assert shown["PROXIMITY_SECRET_KEY"]["value"] == "********"
    assert shown["PROXIMITY_DATABASE_URL"]["source"] == str(sre.env_file)
    assert SECRET_KEY not in sre("settings")


async def add_a_company(sre: User, service: HttpService) -> None:
    """Its service is not up yet."""
    async with Holder(await sre.serve()) as holder:
        await holder.sign_in("owner@pier.example", PASSWORD)
        venue = (await holder.post("/region", {"name": "Pier", "address": "x", "active": 1}))["id"]
        made = await holder.post(f"/region/{venue}/beacon", beacon(minor=1))
        for form in ("url", "connector"):
            fields = campaign(form, beacons=[{"id": made["id"]}])
            await holder.post(f"/lieu/{venue}/campaign", fields)
        fields = {"name": "Offers", "method": "POST", "auth": "header", "parameters": "[]"}
        await holder.call("PUT", "/connector", fields | {"url": service.url("/offer")})


def walk_in(sre: User, *udids: str) -> None:
    """Devices come near the beacon."""
    lines = [{**beacon(minor=1), "proximity": "near", "device": {"udid": each}} for each in udids]
    written = sre.write("visitors.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    assert sre("publish", written).startswith(f"published {len(udids)} ")


def sent(sre: User, udid: str, count: int = 1) -> set[str]:
    """The campaigns whose notifications the device gets, once there are so many."""
    tail = ("notifications", "tail", "--from-beginning", "--count", str(count), "--udid", udid)
    return {each["campaign"]["name"] for each in sre.rows(*tail)}


async def probes_and_metrics(sre: User, trigger: Command) -> None:
    walk_in(sre, "first")
    assert sent(sre, "first") == {"by url"}
    assert (await trigger.get("/healthz"))[0] == 200
    assert all((await trigger.checks()).values())
    _, metrics = await trigger.get("/metrics")
    assert 'proximity_detections_total{reason="granted"} 1.0' in metrics
    assert 'proximity_notifications_total{format="url"} 1.0' in metrics
    assert "proximity_connector_handovers_total 1.0" in metrics
    assert "\nprocess_resident_memory_bytes " in metrics
    started = said(trigger, "starting")
    assert started["roles"] == "trigger"
    assert started["version"]
    assert started["kafka"] == sre.settings["KAFKA_BOOTSTRAP_SERVERS"]
    assert said(trigger, "started")["metrics"] == f"127.0.0.1:{trigger.port}"
    # A port that is taken is a finding, too, and what runs is not disturbed.
    taken = {"METRICS_PORT": str(trigger.port)}
    assert "is the engine running already?" in sre("check", status=1, **taken)


def said(command: Command, event: str) -> dict[str, Any]:
    """The last line of the log with this event."""
    lines = [json.loads(line) for line in command.output.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event][-1]


async def kafka_away_and_back(trigger: Command, kafka: KafkaServer) -> None:
    await asyncio.to_thread(kafka.stop)

    async def away() -> bool:
        status, body = await trigger.get("/readyz")
        return status == 503 and json.loads(body)["checks"]["kafka"] is False

    await eventually(away, deadline=20, what="Kafka is told to be away")
    # Not a reason to restart it.
    assert (await trigger.get("/healthz"))[0] == 200
    await asyncio.to_thread(kafka.start)
    await trigger.until_ready()


async def rolling_restart(sre: User, roles: dict[str, Command]) -> None:
    """One after the other, while devices come in."""
    for role in ROLES:
        walk_in(sre, f"before {role}")
        new = sre.start("run", "--role", role)
        await roles[role].stop()
        assert said(roles[role], "stopped")["seconds"] > 0
        walk_in(sre, f"after {role}")
        await new.until_ready()
        roles[role] = new
    for role in ROLES:
        assert sent(sre, f"before {role}") == sent(sre, f"after {role}") == {"by url"}


async def dead_letters_of_a_service_that_was_down(sre: User, service: HttpService) -> None:
    """What could not be asked is put back once it can."""
    visitors = 1 + 2 * len(ROLES)

    async def failed() -> list[dict[str, Any]]:
        letters = await asyncio.to_thread(sre.rows, "dead-letters", "list")
        return letters if len(letters) == visitors else []

    letters = await eventually(failed, deadline=40, what="every call has failed")
    assert {letter["reason"] for letter in letters} <= {
        "connector_unreachable",
        "connector_breaker",
    }
    assert "connector_unreachable" in sre("dead-letters", "list")
    async with service.running(port=service.port):
        put = await asyncio.to_thread(sre, "dead-letters", "replay")
        assert put == f"{visitors} dead letters put back\n"
        came = await asyncio.to_thread(sent, sre, "first", 2)
        assert came == {"by url", "by connector"}
        again = await asyncio.to_thread(sre, "dead-letters", "replay")
        assert again == "0 dead letters put back\n"
        for role in ROLES:
            assert "by connector" in await asyncio.to_thread(sent, sre, f"after {role}", 2)


async def counted_right(sre: User) -> None:
    visitors = 1 + 2 * len(ROLES)

    def counted() -> bool:
        lines = sre.rows("statistics", "--kind", "venue")
        return [(line["detections"], line["notifications"]) for line in lines] == [
            (visitors, 2 * visitors)
        ]

    await eventually(counted, deadline=40, what="SQL has counted")
    assert sre("verify").splitlines()[-1] == "no differences"
