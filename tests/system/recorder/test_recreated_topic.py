"""Topics deleted and created again under a recorder: SQL has the records of both, each once."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from sqlalchemy import text

from catalog.database import Database, open_database
from tests.recorder.estate import build_estate
from tests.recorder.flood import Flood, assert_written
from tests.servers.waiting import eventually
from tests.system.recorder.test_exact import SEED, SETTINGS, publish
from tests.system.rig import Rig
from tests.system.topics import TopicSet

# As many as a topic has that a client's question makes first.
PARTITIONS = 4
TOPICS = ("detections", "notifications", "authentications")
TOPIC_REPLACED = "the topic is another one, reading it from its beginning"
CATCH_UP = 60.0
OFFSETS = "SELECT topic_id, next_offset FROM recorder_offset WHERE topic NOT LIKE '%presence'"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    opened = open_database(postgres_url)
    yield opened
    await opened.close()


async def recreate(bootstrap: str, names: list[str]) -> None:
    """Delete the topics, and create them again (unless a client's request has)."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
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


async def has_recorded(database: Database, count: int, before: set[str]) -> set[str]:
    """The topics' ids once SQL has so many records of topics that were not there before."""
    async with database.engine.connect() as connection:
        found = (await connection.execute(text(OFFSETS))).all()
    ids = {row.topic_id for row in found}
    is_done = sum(row.next_offset for row in found) == count and not ids & before
    return ids if is_done else set()


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
    rig.environment |= {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(await build_estate(postgres_url), random.Random(SEED), devices=200, now_ms=now_ms)
    topics = TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.recorder", PARTITIONS)
    names = [topics.name(name) for name in TOPICS]
    await topics.create()

    async def publish_some(size: int) -> int:
        made = [*flood.detections(10 * size), *flood.notifications(2 * size)]
        made += flood.authentications(size)
        return await asyncio.to_thread(publish, kafka_bootstrap, topic_prefix, made)

    async def until_recorded(count: int, before: set[str]) -> set[str]:
        recorded = partial(has_recorded, database, count, before)
        found: set[str] = await eventually(recorded, deadline=CATCH_UP, what="all is recorded")
        return found

    recorder = rig.recorder()
    first = await until_recorded(await publish_some(300), set())
    assert len(first) == len(TOPICS)
    if is_away:
        await recorder.stop()
        await recreate(kafka_bootstrap, names)
        count = await publish_some(1000)
        verify = rig.start("verify")  # there is nothing to compare with
        assert await verify.ended() == 1, verify.output
        for name in names:
            recreated = f"{name}/0: the topic was created again since SQL recorded it"
            assert recreated in verify.output
        recorder = rig.recorder()
    else:
        await recreate(kafka_bootstrap, names)
        everywhere = len(TOPICS) * PARTITIONS
        await eventually(
            lambda: recorder.output.count(TOPIC_REPLACED) == everywhere,
            deadline=CATCH_UP,
            what="it is seen",
        )
        count = await publish_some(60)
    await until_recorded(count, first)
    await assert_written(database, flood.expected)
    await recorder.stop()
    verify = rig.start("verify")
    assert await verify.ended() == 0, verify.output
    for name in names:
        assert f"another topic {name} was recorded before this one" in verify.output
