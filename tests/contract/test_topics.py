"""Topics are created with the partitions and replicas of the settings, or not at all."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import InvalidReplicationFactorError

from engine.cli.check.finding import State
from engine.cli.check.kafka import check_kafka
from engine.kafka.topics import ensure_topics
from engine.process.settings_sources import load_settings


async def test_replicas_are_those_of_the_settings(kafka_bootstrap: str, topic_prefix: str) -> None:
    settings = load_settings(
        kafka_bootstrap_servers=kafka_bootstrap, topic_replication=1, topic_partitions=2
    )
    await ensure_topics(settings, (f"{topic_prefix}one",))
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    (topic,) = await admin.describe_topics([f"{topic_prefix}one"])
    await admin.close()
    assert [len(each["replicas"]) for each in topic["partitions"]] == [1, 1]


async def test_more_replicas_than_brokers_are_named(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Topics with fewer replicas than configured are not created."""
    settings = load_settings(
        kafka_bootstrap_servers=kafka_bootstrap, topic_replication=3, topic_prefix=topic_prefix
    )
    expected = "PROXIMITY_TOPIC_REPLICATION is 3, and there are fewer brokers"
    with pytest.raises(InvalidReplicationFactorError, match=expected):
        await ensure_topics(settings, (f"{topic_prefix}three",))
    found = {each.subject: each for each in await check_kafka(settings)}
    missing = found[f"topic {topic_prefix}detections"]
    assert missing.state is State.BAD
    assert "PROXIMITY_TOPIC_REPLICATION needs 3 brokers, and there are 1" in missing.result
