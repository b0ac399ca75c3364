"""Topics deleted and created again under a recorder: SQL has the records of both, each once."""

import random
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from sqlalchemy import text

from catalog.database import Database, open_database
from tests.recorder.estate import build_estate
from tests.recorder.flood import Flood, Message, assert_written
from tests.servers.waiting import eventually
from tests.system.recorder.publishing import publish
from tests.system.recorder.test_exact import SEED, SETTINGS
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet

# As many as a topic has that a client's question makes first.
PARTITIONS = 4
TOPICS = ("detections", "notifications", "authentications")
TOPIC_REPLACED = "the topic is another one, reading it from its beginning"
CATCH_UP = 60.0


class Recorded(NamedTuple):
    """The number of records that SQL has of the present topics, and the topics' ids."""

    records: int
    ids: frozenset[str]


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    opened = open_database(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
def topics(kafka_bootstrap: str, topic_prefix: str) -> TopicSet:
    return TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.recorder", PARTITIONS)


async def recreate(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    """Delete the topics, and create them again (unless a client's request has)."""
    await admin.delete_topics(names)

    async def is_deleted() -> bool:
        return not set(names) & set(await admin.list_topics())

    async def made() -> bool:
        answer = await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
        return all(error[1] in (0, 36) for error in answer.topic_errors)

    await eventually(is_deleted)
    await eventually(made)


async def read_recorded(database: Database) -> Recorded:
    async with database.engine.connect() as connection:
        query = "SELECT topic_id, next_offset FROM recorder_offset WHERE topic NOT LIKE '%presence'"
        rows = await connection.execute(text(query))
        found = rows.all()
    return Recorded(sum(row.next_offset for row in found), frozenset(r.topic_id for r in found))


async def has_recorded(
    database: Database, recorder: Command, count: int, before: frozenset[str]
) -> bool:
    assert recorder.process.poll() is None, recorder.output
    recorded = await read_recorded(database)
    return recorded.records == count and not recorded.ids & before


async def has_logged(recorder: Command) -> bool:
    assert recorder.process.poll() is None, recorder.output
    return recorder.output.count(TOPIC_REPLACED) == len(TOPICS) * PARTITIONS


def some(flood: Flood, size: int) -> list[Message]:
    """Publish records to all three topics."""
    made = [*flood.detections(10 * size), *flood.notifications(2 * size)]
    return [*made, *flood.authentications(size)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("while_it", "size"), [("runs", 60), ("is_away", 1000)])
async def test_counters_and_traces_are_exact(
    rig: Rig,
    topics: TopicSet,
    admin: AIOKafkaAdminClient,
    database: Database,
    kafka_bootstrap: str,
    topic_prefix: str,
    redis_url: str,
    postgres_url: str,
    while_it: str,
    size: int,
) -> None:
    rig.environment |= {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    estate = await build_estate(postgres_url)
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(estate, random.Random(SEED), devices=200, now_ms=now_ms)
    await topics.create()
    recorder = rig.recorder()
    count = await publish(kafka_bootstrap, topic_prefix, some(flood, 300))
    none: frozenset[str] = frozenset()
    recorded = partial(has_recorded, database, recorder, count, none)
    await eventually(recorded, deadline=CATCH_UP, what="the first topics are recorded")
    first = (await read_recorded(database)).ids
    assert len(first) == len(TOPICS)

    names = [topics.name(name) for name in TOPICS]
    if while_it == "runs":
        await recreate(admin, names)
        await eventually(partial(has_logged, recorder), deadline=CATCH_UP, what="it is seen")
        count = await publish(kafka_bootstrap, topic_prefix, some(flood, size))
    else:
        await recorder.stop()
        await recreate(admin, names)
        count = await publish(kafka_bootstrap, topic_prefix, some(flood, size))
        await assert_verify_reports_recreation(rig, names)
        recorder = rig.recorder()
    recorded = partial(has_recorded, database, recorder, count, first)
    await eventually(recorded, deadline=CATCH_UP, what="the recreated topics are recorded")
    assert await has_logged(recorder)
    await assert_written(database, flood.expected)
    await recorder.stop()
    await assert_verify_agrees(rig, names)


async def assert_verify_agrees(rig: Rig, names: list[str]) -> None:
    verify = rig.start("verify")
    assert await verify.ended() == 0, verify.output
    for name in names:
        assert f"another topic {name} was recorded before this one" in verify.output


async def assert_verify_reports_recreation(rig: Rig, names: list[str]) -> None:
    """SQL has recorded topics that no longer exist, so there is nothing to compare with."""
    verify = rig.start("verify")
    assert await verify.ended() == 1, verify.output
    for name in names:
        assert f"{name}/0: the topic was created again since SQL recorded it" in verify.output
    assert "nb_beacon" not in verify.output, verify.output
