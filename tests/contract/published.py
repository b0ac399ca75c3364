"""A topic with a few partitions, and what was published to it."""

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

PARTITIONS = 4


async def read(broker: str, topic: str) -> list["ConsumerRecord[bytes, bytes]"]:
    """All records of the topic, partition by partition."""
    records: list[ConsumerRecord[bytes, bytes]] = []
    async with AIOKafkaConsumer(bootstrap_servers=broker) as consumer:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        async with asyncio.timeout(20):
            while len(records) < sum(ends.values()):
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    records += batch
    return sorted(records, key=lambda record: (record.partition, record.offset))
