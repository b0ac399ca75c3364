"""Both brokers carry a record from aiokafka's producer to aiokafka's consumer, and keep commits."""

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.servers.kafka.server import KafkaServer


async def _publish(bootstrap: str, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, key=b"k", partition=0)


def _consumer(bootstrap: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}.group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        # The embedded broker lets a member that rejoins wait this long less a second.
        session_timeout_ms=6000,
        heartbeat_interval_ms=2000,
    )


async def test_records_and_commits_last_from_one_member_to_the_next(
    broker: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}records"
    await _publish(broker, topic, b"first", b"second")

    async with _consumer(broker, topic) as consumer:
        record = await consumer.getone()
        await consumer.commit({TopicPartition(topic, 0): record.offset + 1})
    async with _consumer(broker, topic) as consumer:
        after = await consumer.getone()

    assert (record.value, after.value) == (b"first", b"second")


async def test_a_transaction_is_committed(broker: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}transactions"
    async with (
        AIOKafkaProducer(bootstrap_servers=broker, transactional_id=f"{topic}.writer") as producer,
        producer.transaction(),
    ):
        await producer.send_and_wait(topic, b"committed", partition=0)

    async with _consumer(broker, topic) as consumer:
        assert (await consumer.getone()).value == b"committed"


async def test_kafka_keeps_its_records_over_a_stop_and_a_kill(
    own_kafka: KafkaServer, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}kept"
    await _publish(own_kafka.bootstrap_servers, topic, b"one")
    own_kafka.stop()
    assert not own_kafka.running
    own_kafka.start()
    await _publish(own_kafka.bootstrap_servers, topic, b"two")
    own_kafka.kill()
    own_kafka.start()

    async with _consumer(own_kafka.bootstrap_servers, topic) as consumer:
        values = [(await consumer.getone()).value for _ in range(2)]

    assert values == [b"one", b"two"]
