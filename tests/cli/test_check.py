"""`proximity check` on real servers: what is right, and each thing that is not."""

import logging
from collections.abc import AsyncIterator
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from redis import Redis

from engine.cli.check import Finding, check_process, check_redis, check_sql, findings
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from tests.cli.given import findings_of
from tests.servers.proximity import Rig
from tests.servers.schema import make_schema


async def test_all_is_well(
    rig: Rig, kafka_bootstrap: str, redis_url: str, postgres_url: str, topic_prefix: str
) -> None:
    await make_schema(postgres_url)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    names = [name for name in Topics.of(topic_prefix) if "dead" not in name]
    for made in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        made.result(30)
    rig.settings = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
        "REDIS_URL": redis_url,
        "DATABASE_URL": postgres_url,
        "SECRET_KEY": "a passphrase of the test",
        "TOPIC_PREFIX": topic_prefix,
    }
    done = rig("check", "--json")
    found = findings_of(done)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert not [each for each, (state, _) in found.items() if state == "bad"]
    assert found["Kafka reachable"] == ("ok", f"{kafka_bootstrap}, 1 broker")
    detections = found[f"Kafka topic {topic_prefix}detections"]
    assert detections == ("ok", "3 partitions")
    missing = found[f"Kafka topic {topic_prefix}dead-letters"]
    assert missing == ("warning", "missing: `run` creates it with 6 partitions")
    for right in ("Redis version", "SQL migrations"):
        assert found[right][0] == "ok", found
    assert "Kafka PROXIMITY_TOPIC_REPLICATION" not in found
    # It is checked, and not created.
    assert topic_prefix + "dead-letters" not in admin.list_topics(timeout=60).topics
    table = rig("check")
    assert table.stdout.splitlines()[0].split() == ["state", "part", "what", "found"]
    assert len(table.stdout.splitlines()) == len(found) + 1


async def by_subject(check: Any, given: Settings) -> dict[str, Finding]:
    return {each.subject: each for each in await findings(check, given)}


async def test_a_redis_that_loses_what_it_has(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        client.config_set("maxmemory", "200mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = await by_subject(check_redis, load_settings(redis_url=redis_url))
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "0")
    assert found["memory"].state == "bad"
    assert "set noeviction" in found["memory"].result
    found = await by_subject(check_redis, load_settings(redis_url=redis_url))
    assert found["memory"].state == "ok"


async def test_a_database_that_is_not_ready(postgres_url: str, sqlite_url: str) -> None:
    for url in (postgres_url, sqlite_url):
        # Tables that are not there yet are no second fault.
        seen = await findings(check_sql, load_settings(database_url=url))
        (fault,) = (each for each in seen if each.state == "bad")
        assert fault.subject == "migrations"
        assert fault.result.endswith("run `proximity migrate`")


async def test_a_database_is_not_blamed_on_kafka() -> None:
    async def refused(_: Settings) -> AsyncIterator[Finding]:
        logging.getLogger("aiokafka").error("Unable to connect")
        raise ConnectionRefusedError
        yield

    (fault,) = await findings(refused, load_settings())
    assert fault.result.startswith("the database refused")


async def test_a_published_secret_key() -> None:
    found = await by_subject(check_process, load_settings(secret_key="for trying out only"))
    assert found["SECRET_KEY"].state == "warning"
    assert "choose your own" in found["SECRET_KEY"].result
