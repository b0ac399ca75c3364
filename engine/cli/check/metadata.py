"""One question to Kafka: brokers, topics, partitions, and what this login may do with them.

aiokafka speaks Metadata up to version 5; what a login may do is in version 8. Unlike its own
requests this one never makes a topic.
"""

from typing import Any, NamedTuple

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from engine.cli.check.asking import Rights, any_broker
from engine.process.settings import Settings

_TEXT = String("utf-8")
READ, WRITE, CREATE = 3, 4, 5
NOT_THERE, FORBIDDEN = 3, 29


class _Answer(Response):  # type: ignore[misc]  # aiokafka is not typed
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline", Array(Int32)),
                    ),
                ),
                ("operations", Int32),
            ),
        ),
        ("operations", Int32),
    )


class _Question(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("topics", Array(_TEXT)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
    )


class _Metadata(Request[_Question]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class(self._topics, False, True, True)


class TopicState(NamedTuple):
    """`error` is Kafka's number, 0 for none; `leaderless` partitions take nothing now."""

    error: int
    partitions: int
    leaderless: int
    rights: Rights


class ClusterState(NamedTuple):
    """The cluster as one broker sees it."""

    brokers: int
    rights: Rights
    topics: dict[str, TopicState]


async def ask_cluster(settings: Settings, topics: tuple[str, ...]) -> ClusterState:
    """The first of several addresses that answers. Raises KafkaError, OSError, TimeoutError, and
    NotImplementedError where the broker is older than Kafka 2.3."""
    async with any_broker(settings) as connection:
        return _read(await connection.send(_Metadata(list(topics))))


def _read(answer: Any) -> ClusterState:
    found = answer.to_object()
    topics = {
        topic["topic"]: TopicState(
            topic["error_code"],
            len(topic["partitions"]),
            sum(each["leader"] < 0 for each in topic["partitions"]),
            Rights(topic["operations"]),
        )
        for topic in found["topics"]
    }
    return ClusterState(len(found["brokers"]), Rights(found["operations"]), topics)
