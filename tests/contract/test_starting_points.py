"""Going on where somebody else than the group says, on both brokers."""

import asyncio
from collections.abc import Collection, Mapping
from functools import partial

import pytest
from aiokafka import TopicPartition

from engine.kafka.publisher import Outgoing
from engine.kafka.starting_points import StartingPointError
from engine.settings import Settings, load_settings
from tests.contract.members import Seen, member, publish
from tests.servers.waiting import eventually

Points = Mapping[TopicPartition, int]


@pytest.fixture
def topic(topic_prefix: str) -> str:
    return f"{topic_prefix}consumed"


@pytest.fixture
def settings(broker: str, topic_prefix: str) -> Settings:
    return load_settings(
        None,
        kafka_bootstrap_servers=broker,
        group_prefix=topic_prefix,
        kafka_session_timeout=4,
        commit_interval=0.1,
        drain_timeout=5,
    )


async def publish_numbers(settings: Settings, topic: str, begin: int, count: int) -> None:
    """All under one key, so that they are in one partition."""
    await publish(
        settings, [Outgoing(topic, b"one", b"%06d" % n, []) for n in range(begin, begin + count)]
    )


def has(seen: Seen, count: int) -> bool:
    return len(seen.values) >= count


async def test_each_start_is_where_it_is_told(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 100)
    for begin in (40, 0, 99):  # whatever the group has committed meanwhile
        seen = Seen()

        async def starts(partitions: Collection[TopicPartition], begin: int = begin) -> Points:
            # An offset beyond the empty partitions would be refused: they are left out.
            return {place: begin for place in partitions if await is_full(place)} if begin else {}

        async def is_full(place: TopicPartition) -> bool:
            ends = await one.consumer._consumer.end_offsets([place])
            return bool(ends[place])

        async with member(settings, topic, seen.handle, starts=starts) as one:
            await eventually(partial(has, seen, 100 - begin))
        assert seen.values == [b"%06d" % n for n in range(begin, 100)]


async def test_nothing_is_handled_before_the_answer(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 50)
    seen, asked, answer = Seen(), asyncio.Event(), asyncio.Event()

    async def starts(_: Collection[TopicPartition]) -> Points:
        asked.set()
        await answer.wait()
        return {}

    async with member(settings, topic, seen.handle, starts=starts) as one:
        await asyncio.wait_for(asked.wait(), 15)
        assert one.consumer.assigned
        assert one.partitions == 0
        assert seen.values == []
        answer.set()
        await eventually(lambda: len(seen.values) >= 50)


async def test_it_can_stop_while_it_waits_for_the_answer(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 5)
    asked = asyncio.Event()

    async def starts(_: Collection[TopicPartition]) -> Points:
        asked.set()
        await asyncio.Event().wait()
        return {}

    async with member(settings, topic, Seen().handle, starts=starts):
        await asyncio.wait_for(asked.wait(), 15)


async def test_a_partition_that_ends_before_its_point_stops_the_run(
    settings: Settings, topic: str
) -> None:
    await publish_numbers(settings, topic, 0, 5)

    async def starts(partitions: Collection[TopicPartition]) -> Points:
        return dict.fromkeys(partitions, 6)

    async with member(settings, topic, Seen().handle, starts=starts) as one:
        error = await one.failed()
    assert isinstance(error, StartingPointError)
    assert "is recorded up to 6" in str(error)


async def test_a_failing_answer_stops_the_run(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 5)

    async def starts(_: Collection[TopicPartition]) -> Points:
        raise LookupError

    async with member(settings, topic, Seen().handle, starts=starts) as one:
        assert isinstance(await one.failed(), LookupError)
