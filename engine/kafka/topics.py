"""The names of the topics, and their creation if a broker does not create them by itself."""

import asyncio
from dataclasses import dataclass, replace

import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from engine.kafka.client_options import connection_options
from engine.process.detection_topics import DetectionTopic
from engine.process.settings import Settings, variable_name

log = structlog.get_logger(__name__)

_FORBIDDEN, _ALREADY_EXISTS, _INVALID_REPLICATION = 29, 36, 38


@dataclass(frozen=True, slots=True)
class Topics:
    """Full topic names. All but `more_detections` have one prefix.

    `more_detections` are the topics that DETECTION_TOPICS adds.
    """

    detections: str
    authentications: str
    notifications: str
    connector_calls: str
    dead_letters: str
    more_detections: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> "Topics":
        """The topics of a process."""
        named = cls.named(settings.topic_prefix)
        every = (topic.name for topic in settings.detection_topics)
        return replace(
            named, more_detections=tuple(name for name in every if name != named.detections)
        )

    @classmethod
    def named(cls, prefix: str) -> "Topics":
        """The five topics with `prefix` (`proximity.` by default)."""
        return cls(
            detections=f"{prefix}detections",
            authentications=f"{prefix}authentications",
            notifications=f"{prefix}notifications",
            connector_calls=f"{prefix}connector-calls",
            dead_letters=f"{prefix}dead-letters",
        )

    def all(self) -> tuple[str, ...]:
        """Every topic, in the order of the flow."""
        return (
            *self.all_detections,
            self.authentications,
            self.notifications,
            self.connector_calls,
            self.dead_letters,
        )

    @property
    def all_detections(self) -> tuple[str, ...]:
        """The topics of detections."""
        return (self.detections, *self.more_detections)


def detection_topics(settings: Settings) -> tuple[DetectionTopic, ...]:
    """The topics of detections with their formats.

    <prefix>detections is one of them, in this project's own format unless the setting names
    another.
    """
    listed = {topic.name: topic for topic in settings.detection_topics}
    names = Topics.of(settings).all_detections
    return tuple(listed.get(name, DetectionTopic(name)) for name in names)


async def ensure_topics(settings: Settings, names: tuple[str, ...]) -> None:
    """Create those of `names` that are missing.

    If this process may not create topics on the cluster, that is no error as long as they exist.
    Raises KafkaError if a topic is missing and cannot be created, TimeoutError after the deadline.
    """
    admin = AIOKafkaAdminClient(**connection_options(settings))
    async with asyncio.timeout(settings.kafka_request_timeout * 2):
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
            raise _refused(name, code, settings)
    log.info("topics created", topics=names, partitions=settings.topic_partitions)


def _refused(name: str, code: int, settings: Settings) -> KafkaError:
    """A topic that a login may not see looks as if it were missing."""
    fault = f"topic {name} is missing and cannot be created"
    if code == _FORBIDDEN:
        fault = (
            f"this login may neither see nor create topic {name}: `proximity check` lists what "
            "it may do"
        )
    elif code == _INVALID_REPLICATION:
        setting, replicas = variable_name("topic_replication"), settings.topic_replication
        fault += f": {setting} is {replicas}, and there are fewer brokers"
    error: KafkaError = for_code(code)(fault)
    return error
