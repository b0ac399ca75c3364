"""Publishing on both brokers: partitions, order, and messages that are too large."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import InvalidTimestampError

from engine.kafka.batch_sender import _hash
from engine.kafka.errors import MessageTooLargeError
from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.record_time import RecordTime
from engine.process.settings_sources import load_settings
from tests.contract.published import PARTITIONS, read
from tests.servers.kafka.server import KafkaServer

# From the tests of Kafka's own Java client (UtilsTest.testMurmur2).
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


async def test_a_key_goes_to_the_partition_of_the_java_client(
    publisher: Publisher, broker: str, topic: str
) -> None:
    await publisher.publish([Outgoing(topic, key, b"", []) for key in JAVA_HASHES])
    landed = {record.key: record.partition for record in await read(broker, topic)}
    assert landed == {
        key: (number & 0x7FFFFFFF) % PARTITIONS for key, number in JAVA_HASHES.items()
    }


async def test_order_is_kept_within_a_partition(
    publisher: Publisher, broker: str, topic: str
) -> None:
    messages = [
        Outgoing(topic, f"key {n % 50}".encode(), f"{n:05} {'x' * 1000}".encode(), [])
        for n in range(5000)
    ]
    for begin in range(0, 5000, 2500):
        await publisher.publish(messages[begin : begin + 2500])
    records = await read(broker, topic)
    assert len(records) == 5000
    for partition in range(PARTITIONS):
        values = [record.value for record in records if record.partition == partition]
        assert values
        assert values == sorted(values)


async def test_keys_values_and_headers_arrive_as_they_are(
    publisher: Publisher, broker: str, topic: str
) -> None:
    headers = [("a", b"1"), ("b", b"\xff\x00"), ("a", b""), ("é", b"2")]
    await publisher.publish(
        [
            Outgoing(topic, None, b"no key", []),
            Outgoing(topic, b"no value", None, []),
            Outgoing(topic, b"", b"", headers),
            Outgoing(topic, b"\xff\x00", b"\x00\xff", []),
            Outgoing(topic, None, None, []),
        ]
    )
    found = {(r.key, r.value): (r.partition, list(r.headers)) for r in await read(broker, topic)}
    assert set(found) == {
        (None, b"no key"),
        (b"no value", None),
        (b"", b""),
        (b"\xff\x00", b"\x00\xff"),
        (None, None),
    }
    assert found[b"", b""][1] == headers
    assert found[None, b"no key"][0] == found[None, None][0] == 0


async def test_nothing_is_published_for_nothing(publisher: Publisher) -> None:
    await publisher.publish([])


async def test_several_topics_and_tasks_at_once(
    publisher: Publisher, broker: str, topic: str
) -> None:
    async def some(task: int) -> None:
        for n in range(20):
            await publisher.publish(
                [
                    Outgoing(f"{topic}{n % 2}", f"{task}".encode(), f"{task} {n} {i}".encode(), [])
                    for i in range(10)
                ]
            )

    await asyncio.gather(*(some(task) for task in range(6)))
    records = await read(broker, f"{topic}0") + await read(broker, f"{topic}1")
    assert len(records) == len({record.value for record in records}) == 6 * 20 * 10


async def test_a_key_that_is_no_udid_is_not_remembered(
    publisher: Publisher, broker: str, topic: str
) -> None:
    """Dead letters keep their record's key, also a very long one."""
    before = _hash.cache_info().currsize
    keys = [b"%d" % n + b"k" * 100_000 for n in range(20)]
    await publisher.publish([Outgoing(topic, key, b"", []) for key in keys])
    assert _hash.cache_info().currsize == before
    assert {record.key for record in await read(broker, topic)} == set(keys)


# On a real broker only, from here on: the embedded one takes any size, and cannot be stopped.


@pytest.fixture
async def real(kafka_bootstrap: str) -> AsyncIterator[Publisher]:
    one = Publisher.from_settings(load_settings(kafka_bootstrap_servers=kafka_bootstrap))
    await one.start()
    yield one
    await one.close()


async def test_too_large_messages_are_named_and_the_rest_published_once(
    real: Publisher, kafka_bootstrap: str, topic: str
) -> None:
    large = [Outgoing(topic, f"{n}".encode(), b"x" * 1_100_000, []) for n in range(6)]
    around = [Outgoing(topic, f"{n}".encode(), f"{n}".encode(), []) for n in range(60)]
    told: list[Outgoing] = []
    with pytest.raises(MessageTooLargeError) as raised:
        await real.publish([*around[:30], *large, *around[30:]], told.extend)
    assert [message.key for message in raised.value.messages] == [m.key for m in large]
    assert {id(message) for message in told} == {id(message) for message in around}
    await real.publish([Outgoing(topic, b"1", b"y" * 1_000_000, [])])
    values = [record.value or b"" for record in await read(kafka_bootstrap, topic)]
    assert sorted(values) == sorted([*(m.value or b"" for m in around), b"y" * 1_000_000])


async def test_a_refusal_is_remembered_and_not_requested_again(
    real: Publisher, kafka_bootstrap: str, topic: str
) -> None:
    """Each costs a new producer, for which all publishers wait."""
    small = [Outgoing(topic, b"k", b"%d" % n, []) for n in range(5)]
    with pytest.raises(MessageTooLargeError):
        await real.publish([*small, Outgoing(topic, b"k", b"x" * 1_100_000, [])])
    producer = real._producer
    for size in (1_100_000, 1_100_000, 1_300_000):
        with pytest.raises(MessageTooLargeError):
            await real.publish([*small, Outgoing(topic, b"k", b"x" * size, [])])
    await real.publish([Outgoing(topic, b"k", b"y" * 1_000_000, [])])
    assert real._producer is producer
    assert len(await read(kafka_bootstrap, topic)) == 4 * len(small) + 1


async def test_too_large_for_one_task_is_no_harm_to_the_others(
    real: Publisher, kafka_bootstrap: str, topic: str
) -> None:
    large = Outgoing(topic, b"k", b"x" * 1_100_000, [])

    async def some(task: int) -> None:
        for n in range(20):
            if task == 0 and n % 5 == 0:
                with pytest.raises(MessageTooLargeError):
                    await real.publish([large])
            await real.publish([Outgoing(topic, b"k", f"{task} {n}".encode(), [])])

    await asyncio.gather(*(some(task) for task in range(4)))
    values = {record.value for record in await read(kafka_bootstrap, topic)}
    assert values == {f"{task} {n}".encode() for task in range(4) for n in range(20)}


async def test_a_topic_with_a_limit_of_its_own(
    real: Publisher, kafka_bootstrap: str, topic: str
) -> None:
    """Batches as large as usual are refused; the messages in them are not too large."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    limit = {"max.message.bytes": "50000"}
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1, topic_configs=limit)])
    await admin.close()
    messages = [Outgoing(topic, b"k", b"%04d" % n + b"x" * 5000, []) for n in range(300)]
    large = Outgoing(topic, b"k", b"x" * 60_000, [])
    with pytest.raises(MessageTooLargeError) as raised:
        await real.publish([*messages, large])
    assert raised.value.messages == [large]
    values = [record.value for record in await read(kafka_bootstrap, topic)]
    assert set(values) == {message.value for message in messages}


@pytest.mark.timeout(90)
async def test_a_broker_that_is_down_is_waited_for(
    own_kafka: KafkaServer, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}published"
    bootstrap = own_kafka.bootstrap_servers
    settings = load_settings(kafka_bootstrap_servers=bootstrap, kafka_request_timeout=2)
    publisher = Publisher.from_settings(settings)
    await publisher.start()
    try:
        await publisher.publish([Outgoing(topic, b"k", b"before", [])])
        await asyncio.to_thread(own_kafka.stop)
        waiting = asyncio.create_task(publisher.publish([Outgoing(topic, b"k", b"while", [])]))
        await asyncio.to_thread(own_kafka.start)
        await asyncio.wait_for(waiting, 30)
    finally:
        await publisher.close()
    values = [record.value for record in await read(bootstrap, topic)]
    assert values[0] == b"before"
    assert set(values[1:]) == {b"while"}


async def test_a_message_without_a_cause_fails_where_our_clock_is_refused(
    kafka_bootstrap: str, topic: str
) -> None:
    """A message without another timestamp (`proximity publish`); the publisher still works."""
    settings = load_settings(kafka_bootstrap_servers=kafka_bootstrap)
    record_time = RecordTime(clock=lambda: time.time() + 7200)
    publisher = Publisher.from_settings(settings, record_time=record_time)
    await publisher.start()
    try:
        now = int(time.time() * 1000)
        for value in (b"first", b"second"):
            with pytest.raises(InvalidTimestampError):
                await publisher.publish([Outgoing(topic, b"k", b"none", [])])
            await publisher.publish([Outgoing(topic, b"k", value, [], now)])
    finally:
        await publisher.close()
    found = [(each.value, each.timestamp) for each in await read(kafka_bootstrap, topic)]
    assert found == [(b"first", now), (b"second", now)]
