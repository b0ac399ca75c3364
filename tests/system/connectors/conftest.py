"""A group of connector workers, and a view of its progress."""

import pytest

from tests.system.topics import TopicSet


@pytest.fixture
def call_topics(kafka_bootstrap: str, topic_prefix: str) -> TopicSet:
    """The topics as the group of the connector role sees them."""
    group = f"{topic_prefix}g.connector"
    return TopicSet(kafka_bootstrap, topic_prefix, group, source="connector-calls")
