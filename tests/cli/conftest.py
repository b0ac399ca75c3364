import pytest

from tests.servers.proximity import Rig
from tests.system.topics import TopicSet


@pytest.fixture
def topics(embedded_kafka: str, topic_prefix: str) -> TopicSet:
    made = TopicSet(embedded_kafka, topic_prefix, topic_prefix, partitions=4)
    made.mention("detections", "dead-letters")
    return made


@pytest.fixture
def proximity(rig: Rig, topics: TopicSet, topic_prefix: str) -> Rig:
    """The command against the embedded broker, which every machine has."""
    prefixes = dict.fromkeys(("TOPIC_PREFIX", "GROUP_PREFIX"), topic_prefix)
    rig.settings |= prefixes | {"KAFKA_BOOTSTRAP_SERVERS": topics.bootstrap}
    return rig
