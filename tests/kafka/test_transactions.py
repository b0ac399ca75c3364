"""Publishing in transactions on a real broker: fencing, refused messages, timestamps."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from engine.kafka.offsets import Position
from engine.kafka.producer import MessageTooLargeError, Outgoing, Refusals
from engine.kafka.transactions import TransactionalPublisher
from engine.kafka.workers import PartitionRestartError
from engine.process.settings import Settings
from tests.kafka.members import ROLE, committed, on_real_broker
from tests.system.topics import TopicSet

Make = Callable[..., Any]
pytestmark = on_real_broker


@pytest.fixture
async def source(admin: AIOKafkaAdminClient, topic_prefix: str) -> TopicPartition:
    """A partition to process, and a topic to publish to with messages of at most 50 kB."""
    small = {"max.message.bytes": "50000"}
    out = NewTopic(f"{topic_prefix}out", 2, 1, topic_configs=small)
    await admin.create_topics([NewTopic(f"{topic_prefix}in", 1, 1), out])
    return TopicPartition(f"{topic_prefix}in", 0)


@pytest.fixture
async def owner(
    settings: Settings, source: TopicPartition, topic_prefix: str
) -> AsyncIterator[Make]:
    """Creates the next owner of the partition; closed at the end."""
    async with AsyncExitStack() as stack:

        async def make(refusals: Refusals | None = None) -> Any:
            one = TransactionalPublisher(
                settings,
                partition=source,
                group=f"{topic_prefix}{ROLE}",
                refusals=refusals or Refusals(),
            )
            stack.push_async_callback(one.close)
            await one.start()
            return one

        yield make


@pytest.fixture
def seen(settings: Settings, source: TopicPartition, topic_prefix: str) -> Make:
    """What a consumer reads with read_committed, and the group's offset."""
    topics = TopicSet(settings.kafka_bootstrap_servers, topic_prefix, "", 2, committed=True)

    async def read() -> tuple[list[bytes | None], int]:
        (offset,) = await committed(settings, source.topic, 1)
        return sorted([each.value for each in await topics.read("out")], key=str), offset

    return read


@pytest.fixture
def message(topic_prefix: str) -> Callable[[bytes], Outgoing]:
    return lambda value: Outgoing(f"{topic_prefix}out", value[:5], value, [])


async def publish_and_commit(publisher: TransactionalPublisher, message: Outgoing) -> None:
    await publisher.publish([message])
    await publisher.commit(Position(5))


async def test_the_next_owner_ends_what_the_last_one_left_and_shuts_it_out(
    owner: Make, seen: Make, message: Make
) -> None:
    """The last owner has not crashed: it continues its open transaction."""
    last = await owner()
    await last.publish([message(b"again")])
    next_one = await owner()
    assert await seen() == ([], 0)
    with pytest.raises(PartitionRestartError):
        await last.commit(Position(1))
    for _ in range(2):  # nor later
        with pytest.raises(PartitionRestartError):
            await publish_and_commit(last, message(b"again"))
    await next_one.publish([message(b"again")])
    await next_one.commit(Position(1))
    await owner()  # waits until the group's coordinator has the offset
    assert await seen() == ([b"again"], 1)


async def test_the_limit_of_a_topic_is_known_to_the_next_transaction(
    owner: Make, seen: Make, message: Make
) -> None:
    refusals, large = Refusals(), message(b"large" + b"x" * 60_000)
    small = [message(b"%05d" % n + b"x" * 1000) for n in range(100)]  # too much for one batch

    async def whole(publisher: TransactionalPublisher) -> list[Outgoing]:
        refused: list[Outgoing] = []
        try:
            await publisher.publish([*small, large])
        except MessageTooLargeError as error:
            refused = error.messages
        await publisher.commit(Position(1))
        return refused

    for _ in range(12):
        publisher = await owner(refusals)
        try:
            assert await whole(publisher) == [large]
            break
        except PartitionRestartError:
            assert (await seen())[0] == []
    await owner()
    assert await seen() == ([each.value for each in small], 1)
