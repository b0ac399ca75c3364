"""The role connector, put together."""

import secrets
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from aiokafka import TopicPartition

from catalog.secrets import open_cipher
from connectors.breaker import BreakerPolicy, LocalBreakers
from connectors.breaker_client import BreakerClient
from connectors.call import CallLimits, ServiceCaller, client_context
from connectors.egress import EgressGuard
from connectors.errors import CertificatesError
from connectors.resolver import CachingResolver
from connectors.scheduled_call import RetryPolicy
from connectors.scheduler import CallScheduler, SchedulerLimits
from engine.connector.call_history import CallHistoryWriter
from engine.connector.call_result import CompletedCall
from engine.connector.endpoint_opener import EndpointDecryptor
from engine.connector.finished_calls import FinishedCallStore
from engine.connector.pipeline import ROLE, ConnectorRole
from engine.connector.redis_breakers import RedisBreakers
from engine.connector.result_memory import ResultMemory
from engine.connector.result_publisher import ResultPublisher
from engine.connector.transactional_results import (
    TransactionalCallPartition,
    TransactionalResultPublisher,
)
from engine.kafka.finished_ranges import FinishedRanges
from engine.kafka.partition_worker import Worker as KafkaPartitionWorker
from engine.kafka.positions import Place
from engine.kafka.topics import Topics
from engine.kafka.transactions import TransactionalPublisher
from engine.process.failures import redis_may_recover
from engine.process.metrics import Metrics, engine_version
from engine.process.settings import Settings
from engine.redis.claim_settlement import ClaimSettler
from engine.wiring.devices import device_lookup
from engine.wiring.kafka import role_consumer, transactional_consumer
from engine.wiring.role import Parts, Role, Service

# A breaker that cannot be asked for so long is this process's own for a while.
_BREAKER_DEADLINE = 0.5
_FINISHED_DEADLINE = 1.0
_LEASE_BEYOND_CALL = 2.0


def user_agent() -> str:
    """What customers' services see."""
    return f"proximity-engine/{engine_version()}"


def open_caller(settings: Settings) -> ServiceCaller:
    """Calls under the limits of the settings. The caller closes it. Raises CertificatesError."""
    try:
        context = client_context(settings.connector_ca_file)
    except OSError as error:
        raise CertificatesError(
            f"PROXIMITY_CONNECTOR_CA_FILE {settings.connector_ca_file}: "
            f"{error.strerror or 'holds no certificate in PEM'}"
        ) from None
    egress = EgressGuard(
        allow_networks=settings.connector_allow_networks,
        resolve=CachingResolver(),
        deadline=settings.connector_connect_timeout,
    )
    limits = CallLimits(
        connect=settings.connector_connect_timeout,
        call=settings.connector_call_timeout,
        reply_bytes=settings.connector_reply_bytes,
        reply_steps=settings.connector_reply_steps,
    )
    return ServiceCaller(egress=egress, ssl_context=context, limits=limits)


def endpoint_decryptor(settings: Settings) -> EndpointDecryptor:
    """Decrypts with SECRET_KEY, if it is set. Raises SecretKeyError."""
    key = settings.secret_key
    return EndpointDecryptor(None if key is None else open_cipher(key.get_secret_value()))


def build_connector(parts: Parts) -> Role:
    """The connector; nothing is started. Raises SecretKeyError, CertificatesError."""
    settings, metrics = parts.settings, parts.metrics
    topics = Topics.named(settings.topic_prefix)
    caller = open_caller(settings)
    finished = _finished(parts)
    room = ResultMemory()
    past = CallHistoryWriter(
        redis=parts.stores.redis,
        prefix=settings.redis_prefix,
        deadline=settings.redis_timeout,
        metrics=metrics,
    )

    def remember(answered: CompletedCall, now: float) -> None:
        past.note(answered.asked.message.company.id, answered.remembered(now))

    departing: dict[str, Any] = {
        "topics": topics,
        "claims": ClaimSettler(
            redis=parts.stores.redis,
            prefix=settings.redis_prefix,
            deadline=settings.redis_timeout,
        ),
        "finished": finished,
        "metrics": metrics,
        "room": room,
        "on_outcome": remember,
    }
    departures = ResultPublisher(publisher=parts.publisher, **departing)
    calls = _calls(parts, caller, room)
    room.on_room = calls.resume
    role = ConnectorRole(
        settings=settings,
        calls=calls,
        opener=endpoint_decryptor(settings),
        devices=device_lookup(parts),
        departures=departures,
        finished=finished,
        metrics=metrics,
    )
    background: dict[str, Service] = {
        "connector departures": departures.run,
        "past connector calls": past.run,
    }
    if settings.delivery == "exactly_once":

        def make_worker(
            partition: TopicPartition,
            publisher: TransactionalPublisher,
            place: Place,
            on_progress: Callable[[], None],
        ) -> KafkaPartitionWorker:
            mine = TransactionalResultPublisher(publisher=publisher, **departing)
            before = FinishedRanges.read(place.finished)
            return TransactionalCallPartition(
                role.departing_with(mine, before).for_partition(partition, on_progress),
                departures=mine,
                publisher=publisher,
                topic_id=place.topic_id,
                finished_before=before,
                on_progress=on_progress,
            )

        make, transactions = transactional_consumer(parts, ROLE, make_worker)
        background["connector transactions"] = transactions.run
    else:
        make = partial(role_consumer(parts, ROLE), worker_for=role.for_partition)
    consumer = make(
        topics=[topics.connector_calls],
        # No partition waits for a company: what a company has too much is not taken in.
        batch_records=settings.connector_pending,
        in_flight_records=2 * settings.connector_pending,
    )

    async def run_calls() -> None:
        try:
            await calls.run()
        finally:
            await caller.close()

    return Role(
        name=ROLE,
        consumer=consumer,
        background={"connector calls": run_calls} | background,
        checks={"partitions_assigned": lambda: consumer.assigned},
        needs={"redis_writes"},
    )


def _calls(parts: Parts, caller: ServiceCaller, room: ResultMemory) -> CallScheduler:
    settings, metrics = parts.settings, parts.metrics
    retried = metrics.connector_calls.labels("retried")
    return CallScheduler(
        caller=caller,
        breakers=_breakers(parts),
        retries=RetryPolicy(tries=settings.connector_tries),
        limits=SchedulerLimits(
            company=settings.connector_company_calls,
            in_all=settings.connector_calls,
            unfinished=settings.connector_pending,
        ),
        agent=user_agent(),
        on_try=metrics.connector_call_seconds.observe,
        on_retry=retried.inc,
        may_start=lambda: room.has_room,
    )


def _breakers(parts: Parts) -> BreakerClient:
    settings = parts.settings
    policy = BreakerPolicy(
        window=settings.connector_breaker_window,
        failures=settings.connector_breaker_failures,
        pause=settings.connector_breaker_pause,
        lease=settings.connector_call_timeout + _LEASE_BEYOND_CALL,
    )
    breakers = BreakerClient(
        store=RedisBreakers(
            redis=parts.stores.redis,
            prefix=settings.redis_prefix,
            policy=policy,
            deadline=_BREAKER_DEADLINE,
        ),
        local=LocalBreakers(policy),
        name=f"{socket.gethostname()}-{secrets.token_hex(8)}",
        clock=time.time,
        may_pass=redis_may_recover,
        on_store_error=parts.metrics.redis_errors.inc,
    )
    _show(breakers, parts.metrics)
    return breakers


def _show(breakers: BreakerClient, metrics: Metrics) -> None:
    for state in breakers.counts():
        metrics.connector_breakers.labels(state).set_function(partial(_count, breakers, state))


def _count(breakers: BreakerClient, state: str) -> float:
    return breakers.counts()[state]


def _finished(parts: Parts) -> FinishedCallStore:
    settings = parts.settings
    return FinishedCallStore(
        redis=parts.stores.redis,
        prefix=settings.redis_prefix,
        # What is older is not asked again, if it comes again.
        life=2 * settings.max_detection_age,
        deadline=_FINISHED_DEADLINE,
        metrics=parts.metrics,
    )
