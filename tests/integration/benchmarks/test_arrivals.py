"""What is counted as a notification that came."""

from confluent_kafka import Producer

from benchmarks.topics import PARTITIONS, BenchTopics
from tests.servers.waiting import eventually


async def test_an_aborted_transaction_brings_nothing(kafka_bootstrap: str, topic_prefix: str):
    topics = BenchTopics(kafka_bootstrap, topic_prefix, by_mention=False)
    identity = {"bootstrap.servers": kafka_bootstrap, "transactional.id": topic_prefix}
    producer = Producer(identity)
    producer.init_transactions(30)
    with topics.arrivals(dict.fromkeys(range(PARTITIONS), 0)) as arrivals:
        _publish(producer, topics.names.notifications, 3)
        producer.abort_transaction(30)
        _publish(producer, topics.names.notifications, 2)
        producer.commit_transaction(30)
        await eventually(lambda: arrivals.count() == 2)


def _publish(producer: Producer, topic: str, count: int) -> None:
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"{}", partition=0)
    producer.flush(30)
