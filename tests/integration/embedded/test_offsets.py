"""A kept database with an embedded broker, which keeps nothing."""

import pytest
from sqlalchemy import select

from catalog.database import open_database
from catalog.models import RecorderOffset, ReplacedTopic
from engine.cli.embedded.run import forget_offsets
from tests.servers.schema import make_schema


async def write(url: str, *offsets: RecorderOffset) -> None:
    database = open_database(url)
    async with database.write.begin() as session:
        session.add_all(offsets)
    await database.close()


async def topics(url: str) -> set[str]:
    database = open_database(url)
    async with database.read() as session:
        found = set(await session.scalars(select(RecorderOffset.topic)))
    await database.close()
    return found - {"(embedded)"}


def offset() -> RecorderOffset:
    return RecorderOffset(topic="proximity.detections", partition=0, next_offset=500)


@pytest.fixture
async def url(sqlite_url: str) -> str:
    await make_schema(sqlite_url)
    return sqlite_url


async def test_offsets_of_an_embedded_broker_go_with_it(url: str) -> None:
    for _ in range(2):
        await forget_offsets(url)
        assert await topics(url) == set()
        await write(url, offset())


async def test_the_past_is_remembered(url: str) -> None:
    """What those topics added to SQL's figures stays there."""
    for _ in range(3):
        await forget_offsets(url)
        await write(url, offset())
    database = open_database(url)
    async with database.read() as session:
        assert list(await session.scalars(select(ReplacedTopic.topic))) == ["proximity.detections"]
    await database.close()


async def test_offsets_of_a_real_broker_stay(url: str) -> None:
    await write(url, offset())
    await forget_offsets(url)
    assert await topics(url) == {"proximity.detections"}
