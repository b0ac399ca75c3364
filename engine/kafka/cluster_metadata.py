"""Reads a cluster's metadata: its topics with their ids, and the rights of this login.

aiokafka speaks Metadata up to version 5. The rights of a login are in version 8. Topic ids, which
distinguish a topic from an earlier one of the same name, are in version 10 (Kafka 2.8). Unlike
aiokafka's own requests, this one never creates a topic.
"""

import uuid
from collections.abc import Collection
from typing import Any, NamedTuple

from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

from engine.kafka.broker_connection import any_broker
from engine.process.settings import Settings

READ, WRITE, CREATE = 3, 4, 5  # operations, for Rights.has
NOT_THERE, FORBIDDEN = 3, 29  # errors of a topic

_METADATA = 3
_NO_ID = uuid.UUID(int=0)
_NOT_REPORTED = -(2**31)


class _Uuid(AbstractType):  # type: ignore[misc]  # aiokafka is untyped
    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: Any) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


def _response_schema(version: int) -> Schema:
    flexible = version >= 9
    text = CompactString("utf-8") if flexible else String("utf-8")
    array = CompactArray if flexible else Array
    tags = [("tags", TaggedFields)] if flexible else []
    topic_id = [("topic_id", _Uuid)] if version >= 10 else []
    broker = [("node_id", Int32), ("host", text), ("port", Int32), ("rack", text), *tags]
    partition = [
        ("error_code", Int16),
        ("partition", Int32),
        ("leader", Int32),
        ("leader_epoch", Int32),
        ("replicas", array(Int32)),
        ("isr", array(Int32)),
        ("offline_replicas", array(Int32)),
        *tags,
    ]
    topic = [
        ("error_code", Int16),
        ("name", text),
        *topic_id,
        ("is_internal", Boolean),
        ("partitions", array(*partition)),
        ("operations", Int32),
        *tags,
    ]
    return Schema(
        ("throttle_time_ms", Int32),
        ("brokers", array(*broker)),
        ("cluster_id", text),
        ("controller_id", Int32),
        ("topics", array(*topic)),
        ("operations", Int32),
        *tags,
    )


class _Response8(Response):  # type: ignore[misc]
    API_KEY = _METADATA
    API_VERSION = 8
    SCHEMA = _response_schema(8)


class _Response10(Response):  # type: ignore[misc]
    API_KEY = _METADATA
    API_VERSION = 10
    SCHEMA = _response_schema(10)


class _Request8(RequestStruct):  # type: ignore[misc]
    API_KEY = _METADATA
    API_VERSION = 8
    RESPONSE_TYPE = _Response8
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
    )


class _Request10(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _METADATA
    API_VERSION = 10
    RESPONSE_TYPE = _Response10
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
        ("tags", TaggedFields),
    )


class _ClusterRequest(Request[_Request8 | _Request10]):  # type: ignore[misc]
    API_KEY = _METADATA

    def __init__(self, topics: Collection[str], *, operations: bool = False) -> None:
        self._topics = topics
        self._operations = operations

    def build(self, request_struct_class: Any) -> Any:
        flags = (False, self._operations, self._operations)
        if request_struct_class is _Request8:
            return _Request8(list(self._topics), *flags)
        no_tags: dict[int, bytes] = {}
        topics = [(_NO_ID, name, no_tags) for name in self._topics]
        return _Request10(topics, *flags, no_tags)


async def topic_ids(client: AIOKafkaClient, topics: Collection[str]) -> dict[str, str]:
    """The ids of those of `topics` that exist, as 32 hexadecimal digits.

    Empty if the brokers know no ids. The caller sets a deadline. Raises KafkaError, OSError and
    TimeoutError.
    """
    last: Exception = NodeNotReadyError("no broker is known")
    for broker in client.cluster.brokers():
        try:
            response = await client.send(broker.nodeId, _ClusterRequest(topics))
        except NotImplementedError:  # aiokafka's way to say that the broker is older than 2.8
            return {}
        except (KafkaError, OSError, TimeoutError) as error:  # another one may answer
            last = error
        else:
            return {
                topic["name"]: topic["topic_id"].hex
                for topic in response.to_object()["topics"]
                if topic["error_code"] == 0 and topic.get("topic_id", _NO_ID) != _NO_ID
            }
    raise last


class Rights(NamedTuple):
    """The operations that the login may perform; None if the cluster does not say."""

    bits: int

    def has(self, operation: int) -> bool | None:
        """Whether this operation (Kafka's number) is among them."""
        return None if self.bits == _NOT_REPORTED else bool(self.bits >> operation & 1)


class TopicState(NamedTuple):
    """The state of a topic.

    `error` is Kafka's number, 0 for none; `leaderless` is the number of partitions without a
    leader, which accept no messages now.
    """

    error: int
    partitions: int
    leaderless: int
    rights: Rights


class ClusterState(NamedTuple):
    """The cluster as one broker sees it."""

    brokers: int
    rights: Rights
    topics: dict[str, TopicState]


async def fetch_cluster_state(settings: Settings, topics: Collection[str]) -> ClusterState:
    """The state of the cluster, from the first bootstrap address that answers.

    Raises KafkaError, OSError, TimeoutError, and NotImplementedError for a broker older than Kafka
    2.3.
    """
    async with any_broker(settings) as connection:
        return _read(await connection.send(_ClusterRequest(topics, operations=True)))


def _read(response: Any) -> ClusterState:
    found = response.to_object()
    topics = {
        topic["name"]: TopicState(
            topic["error_code"],
            len(topic["partitions"]),
            sum(each["leader"] < 0 for each in topic["partitions"]),
            Rights(topic["operations"]),
        )
        for topic in found["topics"]
    }
    return ClusterState(len(found["brokers"]), Rights(found["operations"]), topics)
