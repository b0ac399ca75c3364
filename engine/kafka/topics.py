"""The names of the topics, and their creation if a broker does not create them by itself."""

import asyncio
from datetime import timedelta
from typing import NamedTuple

import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest

from api.reports import TopicRetention
from engine.kafka.client import NOT_THERE, REQUEST_SECONDS, KafkaCluster, connection_options
from engine.process.settings import DetectionTopic, Settings

log = structlog.get_logger(__name__)

_ALREADY_EXISTS = 36


class Topics(NamedTuple):
    """The full names of the six topics with one prefix, in the order of the flow."""

    detections: str
    authentications: str
    notifications: str
    presence: str
    connector_calls: str
    dead_letters: str

    @classmethod
    def of(cls, prefix: str) -> "Topics":
        """The topics with `prefix` (`proximity.` by default)."""
        return cls(*(f"{prefix}{field.replace('_', '-')}" for field in cls._fields))


def detection_topics(settings: Settings) -> tuple[DetectionTopic, ...]:
    """The topics of detections with their formats.

    <prefix>detections is the first, in this project's own format unless the setting names another.
    """
    listed = {topic.name: topic for topic in settings.detection_topics}
    own = Topics.of(settings.topic_prefix).detections
    return (listed.pop(own, DetectionTopic(own)), *listed.values())


def all_topics(settings: Settings) -> tuple[str, ...]:
    """The name of every topic of a process, those of detections first."""
    _, *others = Topics.of(settings.topic_prefix)
    return (*(topic.name for topic in detection_topics(settings)), *others)


async def ensure_topics(settings: Settings, names: tuple[str, ...]) -> None:
    """Create those of `names` that are missing.

    If this process may not create topics on the cluster, that is no error as long as they exist.
    Raises KafkaError if a topic is missing and cannot be created, TimeoutError after the deadline.
    """
    admin = AIOKafkaAdminClient(**connection_options(settings))
    async with asyncio.timeout(REQUEST_SECONDS * 2):
        await admin.start()
        try:
            present = set(await admin.list_topics())
            missing = [name for name in names if name not in present]
            if missing:
                await _create(admin, missing, settings)
        finally:
            await admin.close()


async def _create(admin: AIOKafkaAdminClient, names: list[str], settings: Settings) -> None:
    topics_to_create = [
        NewTopic(
            name,
            num_partitions=settings.topic_partitions,
            replication_factor=settings.topic_replication,
            # aiokafka takes the broker's default (-1) only beside an (empty) assignment.
            replica_assignments={} if settings.topic_replication == -1 else None,
        )
        for name in names
    ]
    try:
        response = await admin.create_topics(topics_to_create)
    except AttributeError:  # aiokafka's way to say that the cluster names no controller
        raise KafkaError(
            f"the brokers create no topics on request, and lack {', '.join(names)}"
        ) from None
    for name, code, *_ in response.topic_errors:
        if code not in (0, _ALREADY_EXISTS):
            fault = f"topic {name} is missing, or hidden from this login, and cannot be created"
            raise for_code(code)(f"{fault} with TOPIC_REPLICATION={settings.topic_replication}")
    log.info("topics created", topics=names, partitions=settings.topic_partitions)


_TOPIC = 2
_KEYS = ("cleanup.policy", "retention.ms", "segment.ms")
_DEADLINE = 5.0
_UNKNOWN = TopicRetention("unknown")


async def read_retention(settings: Settings) -> TopicRetention:
    """How long the topics keep a message at most; unknown if no broker answers, or refuses this
    login.

    A segment is deleted when its newest message is `retention.ms` old, and its oldest one may be
    older by `segment.ms`.
    """
    resources = [(_TOPIC, name, list(_KEYS)) for name in all_topics(settings)]
    try:
        async with KafkaCluster(settings, _DEADLINE) as cluster:
            response = await cluster.send(DescribeConfigsRequest(resources))
    except (KafkaError, OSError, TimeoutError, NotImplementedError) as error:
        # (aiokafka raises NotImplementedError if the broker lacks the request.)
        log.info("Kafka does not report its retention", error=type(error).__name__)
        return _UNKNOWN
    longest = timedelta()
    for resource in response.to_object()["resources"]:
        if resource["error_code"] == NOT_THERE:
            continue
        found = {each["config_names"]: each["config_value"] for each in resource["config_entries"]}
        if resource["error_code"] or not set(_KEYS) <= set(found):
            return _UNKNOWN
        retention = int(found["retention.ms"])
        if retention < 0 or "delete" not in found["cleanup.policy"]:
            return TopicRetention("unbounded")
        kept = timedelta(milliseconds=retention + int(found["segment.ms"]))
        longest = max(longest, kept)
    return TopicRetention("bounded", longest)
