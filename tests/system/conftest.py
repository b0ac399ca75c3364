"""A rig on real servers: topics and prefixes of the test's own, processes that end with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.rig import Rig
from tests.system.topics import TopicSet

pytest.register_assert_rewrite("tests.system.comparison")


@pytest.fixture
def topics(kafka_bootstrap: str, topic_prefix: str) -> TopicSet:
    return TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.trigger")


@pytest.fixture
def rig(
    request: pytest.FixtureRequest, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Rig]:
    """Processes on the real Kafka; the test adds REDIS_URL and DATABASE_URL."""
    made = Rig(
        tmp_path,
        {
            "KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
            "TOPIC_PREFIX": topic_prefix,
            "GROUP_PREFIX": f"{topic_prefix}g.",
            "REDIS_PREFIX": topic_prefix,
            "KAFKA_SESSION_TIMEOUT": "6",
            "LOG_FORMAT": "json",
        },
    )
    yield made
    made.close()
