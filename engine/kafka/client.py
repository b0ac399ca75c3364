"""Connects to Kafka: the options of every client, and requests about the whole cluster."""

import asyncio
import ssl
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, NodeNotReadyError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from aiokafka.structs import OffsetAndMetadata

from engine.kafka.login_token import LoginTokens
from engine.process.errors import SettingsError
from engine.process.lifecycle import cancel
from engine.process.settings import PREFIX, Settings

CLIENT_ID = "proximity-engine"
OAUTHBEARER = "OAUTHBEARER"
REQUEST_SECONDS = 20.0  # deadline of one request to a broker
FETCH_MS = 100  # how long a broker may wait for new records before it answers a fetch
NOT_THERE, FORBIDDEN = 3, 29  # errors of a topic

_METADATA_MS = 4000
_IDLE_METADATA_MS = 300_000  # of a client that looks brokers up only to send them requests
_GROUP = 0
_CLOSE_SECONDS = 1.0


def connection_options(settings: Settings) -> dict[str, Any]:
    """Addresses, deadlines and credentials for consumer, producer and admin alike."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap_servers,
        "client_id": CLIENT_ID,
        "request_timeout_ms": int(REQUEST_SECONDS * 1000),
        # Else there are ten attempts a second, each with a log line, while a broker is down.
        "retry_backoff_ms": 500,
        # New partitions are noticed within this time, and have an owner a few seconds later.
        "metadata_max_age_ms": _METADATA_MS,
        "security_protocol": settings.kafka_security_protocol,
    }
    if "SSL" in settings.kafka_security_protocol:
        options["ssl_context"] = _tls(settings)
    if settings.kafka_security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism
        if settings.kafka_sasl_mechanism == OAUTHBEARER:
            options["sasl_oauth_token_provider"] = LoginTokens(settings)
        else:
            password = settings.kafka_sasl_password
            options["sasl_plain_username"] = settings.kafka_sasl_username
            options["sasl_plain_password"] = password and password.get_secret_value()
    return options


async def stop_consumer(consumer: AIOKafkaConsumer, deadline: float) -> bool:
    """Disconnect within `deadline` seconds; whether the consumer has left its group in order.

    If stop() cancels a fetch that has not begun yet, or one that waits after an error, aiokafka
    raises CancelledError after it has left the group, and the process's end closes the connections.
    """
    stopping = asyncio.create_task(consumer.stop(), name="stopping a consumer")
    try:
        done, _ = await asyncio.wait([stopping], timeout=deadline)
    finally:
        await cancel([stopping])
    return bool(done)


def _tls(settings: Settings) -> ssl.SSLContext:
    """Verifies the brokers, host name included. Raises SettingsError."""
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ssl_cafile)
    except (OSError, ValueError):
        raise SettingsError(
            f"{PREFIX}KAFKA_SSL_CAFILE {settings.kafka_ssl_cafile}: contains no certificate in PEM"
        ) from None
    certificate, key = settings.kafka_ssl_certfile, settings.kafka_ssl_keyfile
    if certificate is not None:
        given = settings.kafka_ssl_password
        # Without a password OpenSSL would read one from the terminal.
        password = "" if given is None else given.get_secret_value()
        try:
            context.load_cert_chain(certificate, key, password)
        except (OSError, ValueError):
            reason = "no certificate with its key in PEM, or KAFKA_SSL_PASSWORD is not the key's"
            files = (
                f"{certificate}" if key is None else f"{certificate} with KAFKA_SSL_KEYFILE {key}"
            )
            raise SettingsError(f"{PREFIX}KAFKA_SSL_CERTFILE {files}: {reason}") from None
    return context


class TopicState(NamedTuple):
    """The state of a topic.

    `error` is Kafka's number, 0 for none; `leaderless` partitions accept no messages now; `id` (32
    hexadecimal digits) distinguishes the topic from an earlier one of the same name, None if the
    brokers know no ids (before Kafka 2.8).
    """

    error: int
    partitions: tuple[int, ...]
    leaderless: int
    id: str | None = None


class ClusterState(NamedTuple):
    """The cluster as one broker sees it."""

    brokers: int
    topics: Mapping[str, TopicState]


class KafkaCluster:
    """Requests that consumers and producers do not make, on connections of its own.

    It connects with the first request. Its methods raise KafkaError, OSError and TimeoutError;
    each request ends after `timeout` seconds.
    """

    def __init__(self, settings: Settings, timeout: float | None = None) -> None:
        self._options = connection_options(settings) | {"metadata_max_age_ms": _IDLE_METADATA_MS}
        if timeout is not None:
            self._options["request_timeout_ms"] = int(timeout * 1000)
        self._client: AIOKafkaClient | None = None
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> "KafkaCluster":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect. The next request connects again."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.close()

    async def send(self, request: Request[Any]) -> Any:
        """The response of the first broker that answers."""
        client = await self._connected()
        failure: Exception = NodeNotReadyError("no broker is known")
        for broker in client.cluster.brokers():
            try:
                return await client.send(broker.nodeId, request)
            except (KafkaError, OSError, TimeoutError) as error:
                failure = error
        raise failure

    async def probe(self) -> None:
        """Return if a broker answers now."""
        try:
            await self.send(MetadataRequest([]))
        except (KafkaError, OSError, TimeoutError):
            await self.close()
            raise

    async def committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that `group` has committed, with their metadata; a partition without a
        commit is left out."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        client = await self._connected()
        coordinator = await client.coordinator_lookup(_GROUP, group)
        request = OffsetFetchRequest(group, list(by_topic.items()))
        response = (await client.send(coordinator, request)).to_object()
        found = {
            TopicPartition(topic["topic"], each["partition"]): each
            for topic in response["topics"]
            for each in topic["partitions"]
        }
        errors = {each["error_code"] for each in found.values()}
        for code in errors | {response.get("error_code", 0)}:
            if code not in (0, NOT_THERE):
                raise for_code(code)(f"the committed offsets of {group}")
        return {
            partition: OffsetAndMetadata(each["offset"], each["metadata"])
            for partition, each in found.items()
            if each["offset"] >= 0
        }

    async def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of those of `topics` that exist. Empty if the brokers know no ids."""
        found = (await self.state(topics)).topics
        return {name: each.id for name, each in found.items() if not each.error and each.id}

    async def visible(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """The state of `topics`. Raises KafkaError if this login may not see one of them."""
        found = (await self.state(topics)).topics
        for name, each in found.items():
            if each.error == FORBIDDEN:
                raise for_code(FORBIDDEN)(f"topic {name} is hidden from this login")
        return found

    async def state(self, topics: Collection[str]) -> ClusterState:
        """The state of the cluster and of `topics`. Unlike other requests of aiokafka, it never
        creates a topic."""
        try:
            response = await self.send(_MetadataRequest10Builder(topics))
        except NotImplementedError:  # aiokafka's way to say that the broker is older
            response = await self.send(MetadataRequest(list(topics), False))
        found = response.to_object()
        states = {each.get("name") or each["topic"]: _topic_state(each) for each in found["topics"]}
        return ClusterState(len(found["brokers"]), states)

    async def _connected(self) -> AIOKafkaClient:
        async with self._connecting:
            if self._client is None:
                client = AIOKafkaClient(**self._options)
                await client.bootstrap()
                self._client = client
            return self._client


def _topic_state(topic: Mapping[str, Any]) -> TopicState:
    partitions = topic["partitions"]
    id_ = topic.get("id_high", 0) % 2**64 << 64 | topic.get("id_low", 0) % 2**64
    return TopicState(
        error=topic["error_code"],
        partitions=tuple(sorted(each["partition"] for each in partitions)),
        leaderless=sum(each["leader"] < 0 for each in partitions),
        id=f"{id_:032x}" if id_ else None,
    )


# aiokafka speaks Metadata up to version 5. Version 10 (Kafka 2.8) has the topics' ids.
_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_ID = (("id_high", Int64), ("id_low", Int64))


_BROKERS = CompactArray(
    ("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS
)
_PARTITIONS = CompactArray(
    ("error_code", Int16),
    *((name, Int32) for name in ("partition", "leader", "leader_epoch")),
    *((name, CompactArray(Int32)) for name in ("replicas", "isr", "offline_replicas")),
    _TAGS,
)
_TOPICS = CompactArray(
    ("error_code", Int16),
    ("name", _TEXT),
    *_ID,
    ("is_internal", Boolean),
    ("partitions", _PARTITIONS),
    ("operations", Int32),
    _TAGS,
)


class _MetadataResponse10(Response):  # type: ignore[misc]  # aiokafka is untyped
    API_KEY = MetadataRequest.API_KEY
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", _BROKERS),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        ("topics", _TOPICS),
        ("operations", Int32),
        _TAGS,
    )


class _MetadataRequest10(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = MetadataRequest.API_KEY
    API_VERSION = 10
    RESPONSE_TYPE = _MetadataResponse10
    SCHEMA = Schema(
        ("topics", CompactArray(*_ID, ("name", _TEXT), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
        _TAGS,
    )


class _MetadataRequest10Builder(Request[_MetadataRequest10]):  # type: ignore[misc]
    API_KEY = MetadataRequest.API_KEY

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataRequest10]) -> _MetadataRequest10:
        no_tags: dict[int, bytes] = {}
        topics = [(0, 0, name, no_tags) for name in self._topics]
        return request_struct_class(topics, False, False, False, no_tags)
