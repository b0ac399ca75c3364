"""Topics deleted and created again under a recorder: SQL has the records of both, each once."""

import random
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from sqlalchemy import text

from catalog.database import Database, open_database
from tests.recorder.estate import build_estate
from tests.recorder.flood import Flood, assert_written
from tests.servers.proximity import Rig
from tests.servers.waiting import eventually
from tests.system.recorder.flooding import publish
from tests.system.topics import TopicSet

# As many as a topic has that a client's question makes first.
PARTITIONS = 4
TOPICS = ("detections", "notifications", "authentications")
TOPIC_REPLACED = "the topic is another one, reading it from its beginning"
OFFSETS = "SELECT topic_id, next_offset FROM recorder_offset WHERE topic NOT LIKE '%presence'"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    opened = open_database(postgres_url)
    yield opened
    await opened.close()


async def recreate(topics: TopicSet) -> None:
    """Delete the topics, and create them again (unless a client's request has)."""
    names = [topics.name(short) for short in TOPICS]
    admin = AIOKafkaAdminClient(bootstrap_servers=topics.bootstrap)
    await admin.start()
    await admin.delete_topics(names)

    async def is_deleted() -> bool:
        return not set(names) & set(await admin.list_topics())

    async def made() -> bool:
        answer = await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
        return all(error[1] in (0, 36) for error in answer.topic_errors)

    await eventually(is_deleted)
    await eventually(made)
    await admin.close()


async def until_recorded(database: Database, count: int, before: set[str]) -> set[str]:
    """Wait until SQL has so many records of topics that were not there before. Their ids."""

    async def ids() -> set[str]:
        async with database.engine.connect() as connection:
            found = (await connection.execute(text(OFFSETS))).all()
        ids = {row.topic_id for row in found}
        is_done = sum(row.next_offset for row in found) == count and not ids & before
        return ids if is_done else set()

    found: set[str] = await eventually(ids, what="all is recorded")
    return found


@pytest.mark.parametrize("is_away", [False, True])
async def test_counters_and_traces_are_exact(
    rig: Rig,
    database: Database,
    kafka_bootstrap: str,
    topic_prefix: str,
    redis_url: str,
    postgres_url: str,
    is_away: bool,
) -> None:
    rig.settings |= {"REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(await build_estate(postgres_url), random.Random(5), devices=200, now_ms=now_ms)
    topics = TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.", PARTITIONS)
    await topics.create()

    async def publish_some(size: int) -> int:
        made = [*flood.detections(10 * size), *flood.notifications(2 * size)]
        return await publish(topics, [*made, *flood.authentications(size)])

    recorder = rig.role("recorder")
    first = await until_recorded(database, await publish_some(300), set())
    assert len(first) == len(TOPICS)
    if is_away:
        await recorder.stop()
        await recreate(topics)
        count = await publish_some(1000)
        verify = rig.start("verify")  # there is nothing to compare with
        assert await verify.ended() == 1, verify.output
        for short in TOPICS:
            name = topics.name(short)
            recreated = f"{name}/0: the topic was created again since SQL recorded it"
            assert recreated in verify.output
        recorder = rig.role("recorder")
    else:
        await recreate(topics)
        everywhere = len(TOPICS) * PARTITIONS
        await eventually(lambda: recorder.output.count(TOPIC_REPLACED) >= everywhere)
        count = await publish_some(60)
    await until_recorded(database, count, first)
    await assert_written(database, flood.expected)
    await recorder.stop()
    verify = await rig.verify()
    for short in TOPICS:
        assert f"another topic {topics.name(short)} was recorded before this one" in verify.output
