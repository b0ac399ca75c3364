"""The id of a topic: a topic made anew under an old name has another one.

aiokafka speaks Metadata up to version 5, which has no ids; version 10 (Kafka 2.8) has. Its
protocol layer takes requests of our own.
"""

import uuid
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_METADATA = 3
_VERSION = 10
_NO_ID = uuid.UUID(int=0)


class _Uuid(AbstractType):  # type: ignore[misc]  # aiokafka is untyped
    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: Any) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


class _Answer(Response):  # type: ignore[misc]
    API_KEY = _METADATA
    API_VERSION = _VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _METADATA
    API_VERSION = _VERSION
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _TopicIdsRequest(Request[_Question]):  # type: ignore[misc]
    API_KEY = _METADATA

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Question]) -> _Question:
        no_tags: dict[int, bytes] = {}
        topics = [(_NO_ID, name, no_tags) for name in self._topics]
        return request_struct_class(topics, False, False, False, {})


async def topic_ids(client: AIOKafkaClient, topics: Collection[str]) -> dict[str, str]:
    """The ids of those of `topics` that exist, as 32 hexadecimal digits.

    Empty where the brokers know no ids. The caller sets a deadline. Raises KafkaError, OSError
    and TimeoutError.
    """
    last: Exception = NodeNotReadyError("no broker is known")
    for broker in client.cluster.brokers():
        try:
            answer = await client.send(broker.nodeId, _TopicIdsRequest(topics))
        except NotImplementedError:  # aiokafka's way to say that the broker is older than 2.8
            return {}
        except (KafkaError, OSError, TimeoutError) as error:  # another one may answer
            last = error
        else:
            return {
                name: topic_id.hex
                for error_code, name, topic_id, *_ in answer.topics
                if error_code == 0 and topic_id != _NO_ID
            }
    raise last
