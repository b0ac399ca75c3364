"""Builds the role connector."""

import secrets
import socket
import time
from collections.abc import Callable
from functools import partial

from aiokafka import TopicPartition

from catalog.secrets import open_cipher
from connectors.breaker import BreakerPolicy, LocalBreakers
from connectors.breaker_client import BreakerClient
from connectors.call import CallLimits, ServiceCaller, client_context
from connectors.egress import EgressGuard
from connectors.errors import CertificatesError
from connectors.model import Call
from connectors.scheduled_call import RetryPolicy
from connectors.scheduler import CallScheduler, SchedulerLimits
from engine.connector.call_history import CallHistoryWriter
from engine.connector.call_partition import CallPartition
from engine.connector.finished_calls import FinishedCallStore
from engine.connector.intake import EndpointDecryptor
from engine.connector.pipeline import AtLeastOnceResults, ConnectorRole
from engine.connector.redis_breakers import RedisBreakers
from engine.connector.result_publisher import ROLE, ResultMemory, ResultPublisher
from engine.connector.transactional_results import TransactionalCallPartition, TransactionalResults
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.positions import Position
from engine.kafka.topics import Topics
from engine.kafka.transactions import TransactionalPublisher
from engine.process.failures import redis_may_recover
from engine.process.metrics import Metrics, engine_version
from engine.process.settings import Settings
from engine.redis.claims import ClaimUpdater
from engine.wiring.figures import figure_sums
from engine.wiring.kafka import role_consumer, transactional_consumer
from engine.wiring.role import ProcessParts, Role, Service

_BREAKER_DEADLINE = 0.5  # after it the process uses its own breakers for a while
_FINISHED_DEADLINE = 1.0
_LEASE_BEYOND_CALL = 2.0


def user_agent() -> str:
    """The user-agent of calls to customers' services."""
    return f"proximity-engine/{engine_version()}"


def open_caller(settings: Settings) -> ServiceCaller:
    """A caller within the limits of the settings, to be closed. Raises CertificatesError."""
    try:
        context = client_context(settings.connector_ca_file)
    except OSError as error:
        raise CertificatesError(
            f"PROXIMITY_CONNECTOR_CA_FILE {settings.connector_ca_file}: "
            f"{error.strerror or 'contains no certificate in PEM'}"
        ) from None
    egress = EgressGuard(
        allow_networks=settings.connector_allow_networks,
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
    """A decryptor with SECRET_KEY, if it is set. Raises SecretKeyError."""
    key = settings.secret_key
    return EndpointDecryptor(None if key is None else open_cipher(key.get_secret_value()))


def build_connector(parts: ProcessParts) -> Role:
    """The role; nothing is started. Raises SecretKeyError, CertificatesError."""
    settings, metrics, redis = parts.settings, parts.metrics, parts.stores.redis
    topics = Topics.named(settings.topic_prefix)
    caller = open_caller(settings)
    memory = ResultMemory()
    scheduler = _scheduler(parts, caller, memory)
    memory.on_room = scheduler.resume
    role = ConnectorRole(
        settings=settings,
        scheduler=scheduler,
        decryptor=endpoint_decryptor(settings),
        devices=parts.device_lookup(),
        metrics=metrics,
        tracer=parts.tracer,
    )
    history = CallHistoryWriter(
        redis=redis,
        prefix=settings.redis_prefix,
        deadline=settings.redis_timeout,
        metrics=metrics,
    )
    claims = ClaimUpdater(
        redis=redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout
    )
    sums = figure_sums(parts, time.time)
    steps = ResultPublisher(
        topics=topics, claims=claims, history=history, sums=sums, metrics=metrics
    )
    dead_letters = DeadLetterPublisher(
        topic=topics.dead_letters, publisher=parts.publisher, metrics=metrics
    )

    async def run_calls() -> None:
        try:
            await scheduler.run()
        finally:
            await caller.close()

    background: dict[str, Service] = {"connector calls": run_calls, "call history": history.run}
    if sums is not None:
        background["connector figures"] = sums.run
    if settings.delivery == "exactly_once":

        def make_worker(
            partition: TopicPartition,
            publisher: TransactionalPublisher,
            place: Position,
            on_progress: Callable[[], None],
        ) -> CallPartition:
            results = TransactionalResults(
                steps=steps,
                transactions=publisher,
                publisher=dead_letters.publishing_with(publisher),
                place=place,
                memory=memory,
            )
            return TransactionalCallPartition(
                partition, on_progress, receiver=role, scheduler=scheduler, results=results
            )

        make, transactions = transactional_consumer(parts, ROLE, make_worker)
        background["connector transactions"] = transactions.run
    else:
        results = AtLeastOnceResults(
            steps=steps,
            publisher=dead_letters,
            finished_calls=_finished_calls(parts),
            memory=memory,
        )
        background["connector results"] = results.run
        worker_for = partial(CallPartition, receiver=role, scheduler=scheduler, results=results)
        make = partial(role_consumer(parts, ROLE), worker_for=worker_for)
    consumer = make(
        topics=[topics.connector_calls],
        # A partition never waits for one company: the calls over its share fail at once.
        batch_records=settings.connector_pending,
        in_flight_records=2 * settings.connector_pending,
    )
    return Role(
        name=ROLE,
        consumer=consumer,
        background=background,
        checks={"partitions_assigned": lambda: consumer.assigned},
        needs={"redis_writes"},
    )


def _scheduler(parts: ProcessParts, caller: ServiceCaller, memory: ResultMemory) -> CallScheduler:
    settings, metrics = parts.settings, parts.metrics
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
        on_try=partial(_observe_try, metrics),
        on_retry=metrics.connector_calls.labels("retried").inc,
        can_start=lambda: memory.has_room,
    )


def _observe_try(metrics: Metrics, call: Call, seconds: float) -> None:
    """With an exemplar, by which the company's history of calls names it."""
    exemplar = {"notification": call.id, "company": str(call.company_id)}
    metrics.connector_call_seconds.observe(seconds, exemplar)


def _breakers(parts: ProcessParts) -> BreakerClient:
    settings, metrics = parts.settings, parts.metrics
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
        is_temporary=redis_may_recover,
        on_store_error=metrics.redis_errors.inc,
    )

    def count(state: str) -> float:
        return breakers.counts()[state]

    for state in breakers.counts():
        metrics.connector_breakers.labels(state).set_function(partial(count, state))
    return breakers


def _finished_calls(parts: ProcessParts) -> FinishedCallStore:
    settings = parts.settings
    return FinishedCallStore(
        redis=parts.stores.redis,
        prefix=settings.redis_prefix,
        # An older call is stale: it is not made, even if it is read again.
        life=2 * settings.max_detection_age,
        deadline=_FINISHED_DEADLINE,
        metrics=parts.metrics,
    )
