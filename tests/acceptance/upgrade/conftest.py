"""Topics of as many partitions as the earlier versions had when they were recorded."""

import pytest

from tests.acceptance.topics import TopicSet
from tests.acceptance.upgrade.kafka_state import PARTITIONS


@pytest.fixture
def topics(kafka_bootstrap: str, topic_prefix: str) -> TopicSet:
    return TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.trigger", PARTITIONS)
