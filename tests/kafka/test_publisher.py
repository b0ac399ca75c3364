"""Publishing on both brokers: partitions, order, acknowledgements, sizes that are refused."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from engine.kafka.producer import MessageTooLargeError, Outgoing, Publisher
from engine.process.settings_sources import load_settings
from tests.kafka.members import on_real_broker
from tests.servers.kafka.server import KafkaServer
from tests.system.topics import Record, TopicSet

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
    """Over many batches: the notifications of one device stay in order."""
    messages = [
        Outgoing(topic, b"key %d" % (n % 50), b"%05d" % n + b"x" * 1000, []) for n in range(5000)
    ]
    for begin in (0, 2500):
        await publisher.publish(messages[begin : begin + 2500])
    records = await read(broker, topic)
    assert len(records) == 5000
    for partition in range(PARTITIONS):
        values = [record.value for record in records if record.partition == partition]
        assert values
        assert values == sorted(values)


# On a real broker only, from here on: the embedded one takes any size, and cannot be stopped.


@on_real_broker
async def test_too_large_messages_are_named_and_the_rest_published_once(
    publisher: Publisher, broker: str, topic: str
) -> None:
    large = [Outgoing(topic, f"{n}".encode(), b"x" * 1_100_000, []) for n in range(6)]
    around = [Outgoing(topic, f"{n}".encode(), f"{n}".encode(), []) for n in range(60)]
    told: list[Outgoing] = []
    with pytest.raises(MessageTooLargeError) as raised:
        await publisher.publish([*around[:30], *large, *around[30:]], told.extend)
    assert {id(message) for message in raised.value.messages} == {id(each) for each in large}
    assert {id(message) for message in told} == {id(message) for message in around}
    await publisher.publish([Outgoing(topic, b"1", b"y" * 1_000_000, [])])
    values = [record.value or b"" for record in await read(broker, topic)]
    assert sorted(values) == sorted([*(m.value or b"" for m in around), b"y" * 1_000_000])


@on_real_broker
async def test_a_topic_with_a_limit_of_its_own(
    publisher: Publisher, broker: str, topic: str, admin: AIOKafkaAdminClient
) -> None:
    """Batches as large as usual are refused; the messages in them are not too large."""
    limit = {"max.message.bytes": "50000"}
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1, topic_configs=limit)])
    messages = [Outgoing(topic, b"k", b"%04d" % n + b"x" * 5000, []) for n in range(300)]
    large = Outgoing(topic, b"k", b"x" * 60_000, [])
    with pytest.raises(MessageTooLargeError) as raised:
        await publisher.publish([*messages, large])
    assert raised.value.messages == [large]
    values = [record.value for record in await read(broker, topic)]
    assert set(values) == {message.value for message in messages}


@pytest.mark.timeout(90)
async def test_a_silent_broker_gets_each_message_once_and_one_that_is_down_is_waited_for(
    own_kafka: KafkaServer, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silence is longer than the deadline of a request, several times."""
    for module in ("client", "producer"):
        monkeypatch.setattr(f"engine.kafka.{module}.REQUEST_SECONDS", 1.0)
    topic, bootstrap = f"{topic_prefix}published", own_kafka.bootstrap_servers
    publisher = Publisher(load_settings(kafka_bootstrap_servers=bootstrap))
    await publisher.start()
    try:
        await publisher.publish([Outgoing(topic, b"k", b"before", [])])
        messages = [Outgoing(topic, b"%d" % n, b"%d" % n, []) for n in range(20)]
        with own_kafka.frozen():
            waiting = asyncio.create_task(publisher.publish(messages))
            await asyncio.sleep(3)  # the silence
            assert not waiting.done()
        await asyncio.wait_for(waiting, 90)
        await asyncio.to_thread(own_kafka.stop)
        waiting = asyncio.create_task(publisher.publish([Outgoing(topic, b"k", b"down", [])]))
        await asyncio.to_thread(own_kafka.start)
        await asyncio.wait_for(waiting, 90)
    finally:
        await publisher.close()
    values = sorted(record.value or b"" for record in await read(bootstrap, topic))
    assert set(values) == {b"before", b"down", *(message.value for message in messages)}
    assert len([value for value in values if value != b"down"]) == 21


PARTITIONS = 4


async def read(broker: str, topic: str) -> list[Record]:
    """All records of the topic, partition by partition."""
    return await TopicSet(broker, "", "", PARTITIONS).read(topic)
