"""The names of the topics, their creation, and how long they keep a message."""

from datetime import timedelta

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import InvalidReplicationFactorError

from api.reports import TopicRetention
from engine.cli.check import check_kafka, findings
from engine.formats.decoders import detection_decoders
from engine.kafka.topics import all_topics, detection_topics, ensure_topics, read_retention
from engine.process.settings import DetectionTopic
from engine.process.settings_sources import load_settings
from tests.servers.waiting import eventually


async def test_more_replicas_than_brokers_are_named(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Topics with fewer replicas than configured are not created."""
    settings = load_settings(
        kafka_bootstrap_servers=kafka_bootstrap, topic_replication=3, topic_prefix=topic_prefix
    )
    expected = "cannot be created with TOPIC_REPLICATION=3"
    with pytest.raises(InvalidReplicationFactorError, match=expected):
        await ensure_topics(settings, (f"{topic_prefix}three",))
    found = {each.subject: each for each in await findings(check_kafka, settings)}
    missing = found[f"topic {topic_prefix}detections"]
    assert missing.state == "bad"
    assert "too few brokers" in missing.result
    replicas = found["PROXIMITY_TOPIC_REPLICATION"]
    assert replicas.state == "warning"
    assert replicas.result == "3 replicas need as many brokers: 1 broker found"


def test_topics_stand_beside_ours_in_the_order_of_the_setting():
    settings = load_settings(topic_prefix="p.", detection_topics=" b=own, a = cloudevents+own,")
    assert detection_topics(settings) == (
        DetectionTopic("p.detections"),
        DetectionTopic("b"),
        DetectionTopic("a", in_cloudevents=True),
    )
    assert all_topics(settings)[:4] == ("p.detections", "b", "a", "p.authentications")
    assert list(detection_decoders(settings)) == ["p.detections", "b", "a"]


UNKNOWN = TopicRetention("unknown")
HOUR = 3_600_000


async def test_the_longest_of_all_topics(
    kafka_bootstrap: str, topic_prefix: str, admin: AIOKafkaAdminClient
):
    settings = load_settings(kafka_bootstrap_servers=kafka_bootstrap, topic_prefix=topic_prefix)
    # (Topics that are not there keep nothing.)
    assert await read_retention(settings) == TopicRetention("bounded", timedelta())
    for name, retention in (("detections", HOUR), ("notifications", 2 * HOUR)):
        configs = {"retention.ms": str(retention), "segment.ms": str(HOUR)}
        topic = NewTopic(f"{topic_prefix}{name}", 1, 1, topic_configs=configs)
        await admin.create_topics([topic])
    longest = TopicRetention("bounded", timedelta(hours=3))

    async def is_read() -> bool:  # a broker may learn of a topic a moment later
        return await read_retention(settings) == longest

    await eventually(is_read)


async def test_brokers_that_do_not_say(embedded_kafka: str):
    for address in (embedded_kafka, "127.0.0.1:9"):
        assert await read_retention(load_settings(kafka_bootstrap_servers=address)) == UNKNOWN
