"""Builds the role connector."""

from collections.abc import Callable
from functools import partial
from typing import get_args

from catalog.database import Database
from connectors.client import ServiceCaller, client_context
from connectors.egress import EgressGuard
from connectors.errors import CertificatesError
from connectors.model import BreakerStatus, Call
from connectors.schedule import Breaker, CallScheduler, ScheduleLimits
from engine import engine_version
from engine.connector.calls import EndpointDecryptor
from engine.connector.partition import ROLE, CallPartition, ConnectorRole
from engine.connector.stores import CallHistoryWriter
from engine.connector.trial_call import ConnectorTrials
from engine.kafka.dead_letters import DeadLetterLimit
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.redis.claims import Claims
from engine.wiring.parts import ProcessParts, Role, cipher_of, publishing_consumer

_REDIS_SECONDS = 1.0  # after it results are published without Redis


def _user_agent() -> str:
    """The user-agent of calls to customers' services."""
    return f"proximity-engine/{engine_version()}"


def service_callers(settings: Settings) -> Callable[[], ServiceCaller]:
    """Makes callers within the limits of the settings, to be closed. Raises CertificatesError."""
    try:
        context = client_context(settings.connector_ca_file)
    except OSError as error:
        raise CertificatesError(
            f"PROXIMITY_CONNECTOR_CA_FILE {settings.connector_ca_file}: "
            f"{error.strerror or 'contains no certificate in PEM'}"
        ) from None
    return partial(
        ServiceCaller,
        egress=EgressGuard(allow_networks=settings.connector_allow_networks),
        ssl_context=context,
        deadline=settings.connector_call_timeout,
    )


def connector_trials(settings: Settings, database: Database) -> ConnectorTrials:
    """Tries connectors. Raises SecretKeyError and CertificatesError."""
    decryptor = EndpointDecryptor(cipher_of(settings))
    return ConnectorTrials(database, decryptor, service_callers(settings), agent=_user_agent())


def build_connector(parts: ProcessParts) -> Role:
    """The role; nothing is started. Raises SecretKeyError, CertificatesError."""
    settings, metrics = parts.settings, parts.metrics
    topics = Topics.of(settings.topic_prefix)
    limits = ScheduleLimits(
        company=settings.connector_company_calls, in_all=settings.connector_calls
    )
    history = CallHistoryWriter(metrics=metrics, **parts.stores.redis_options)
    caller = service_callers(settings)()

    def on_try(call: Call, breaker: Breaker) -> None:
        metrics.connector_call_seconds.observe(call.seconds or 0.0)
        history.add_breaker(call.company_id, breaker)
        if call.tried > 1:
            metrics.connector_calls.labels("retried").inc()

    scheduler = CallScheduler(caller=caller, limits=limits, agent=_user_agent(), on_try=on_try)

    async def run_calls() -> None:
        try:
            await scheduler.run()
        finally:
            await caller.close()

    def breakers(state: BreakerStatus) -> int:
        return scheduler.breaker_counts()[state]

    for state in get_args(BreakerStatus):
        metrics.connector_breakers.labels(state).set_function(partial(breakers, state))
    role = ConnectorRole(
        topics=topics,
        fresh_seconds=settings.max_detection_age,
        limit=DeadLetterLimit(settings.dead_letter_share),
        scheduler=scheduler,
        decryptor=EndpointDecryptor(cipher_of(settings)),
        devices=parts.device_lookup(),
        claims=Claims(
            retain=2 * settings.max_detection_age,
            metrics=metrics,
            **{**parts.stores.redis_options, "deadline": _REDIS_SECONDS},
        ),
        letters=parts.dead_letters(),
        history=history,
        metrics=metrics,
        tracer=parts.tracer,
    )

    consumer = publishing_consumer(
        parts,
        ROLE,
        worker_for=partial(CallPartition, role=role),
        topics=[topics.connector_calls],
        # A partition never waits for one company: the calls over its share fail at once.
        batch_records=limits.unfinished,
        in_flight_records=limits.unfinished,
    )
    return Role(
        name=ROLE,
        consumer=consumer,
        background={"connector calls": run_calls, "call history": history.run},
        needs={"redis_writes"},
    )
