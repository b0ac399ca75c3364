"""Builds the consumer of a role and the publisher of a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from engine.kafka.broker_probe import BrokerProbe
from engine.kafka.client_options import connection_options
from engine.kafka.consumer import PartitionedConsumer
from engine.kafka.exactly_once import Transactions, WorkerMaker
from engine.kafka.fetched_records import fetch_structs
from engine.kafka.publisher import Publisher
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.wiring.role import ProcessParts


def group_consumer(settings: Settings, role: str) -> AIOKafkaConsumer:
    """A member of the role's group; it never commits by itself."""
    session_ms = int(settings.kafka_session_timeout * 1000)
    fetch_structs()
    return AIOKafkaConsumer(
        **connection_options(settings),
        group_id=role_group(settings, role),
        enable_auto_commit=False,
        # Every partition gets a position (engine/kafka/positions.py); no jump goes unnoticed.
        auto_offset_reset="none",
        isolation_level="read_committed",
        fetch_max_wait_ms=int(settings.kafka_fetch_wait * 1000),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 5,
        # A revoked partition finishes its batch first; the group waits for that.
        rebalance_timeout_ms=int((settings.drain_timeout + settings.kafka_request_timeout) * 1000),
        partition_assignment_strategy=[StickyPartitionAssignor],
    )


def role_group(settings: Settings, role: str) -> str:
    """The consumer group of a role."""
    return f"{settings.group_prefix}{role}"


def role_consumer(
    parts: ProcessParts, role: str, consumer: AIOKafkaConsumer | None = None
) -> "partial[PartitionedConsumer]":
    """A consumer with the options of every role; the role adds its topics, workers and bounds."""
    settings = parts.settings
    return partial(
        PartitionedConsumer,
        consumer=consumer or group_consumer(settings, role),
        role=role,
        metrics=parts.metrics,
        fetch_wait=settings.kafka_fetch_wait,
        commit_interval=settings.commit_interval,
        drain_timeout=settings.drain_timeout,
    )


def transactional_consumer(
    parts: ProcessParts, role: str, make_worker: WorkerMaker
) -> tuple["partial[PartitionedConsumer]", Transactions]:
    """A consumer whose workers, made by `make_worker`, publish in transactions."""
    consumer = group_consumer(parts.settings, role)
    transactions = Transactions(
        parts.settings,
        consumer=consumer,
        group=role_group(parts.settings, role),
        role=role,
        metrics=parts.metrics,
        make=make_worker,
    )
    make = role_consumer(parts, role, consumer=consumer)
    return partial(make, worker_for=transactions.worker_for, positions=transactions), transactions


@asynccontextmanager
async def open_publisher(settings: Settings, metrics: Metrics) -> AsyncIterator[Publisher]:
    """A started publisher, closed at the end."""
    publisher = Publisher.from_settings(settings, errors=metrics.kafka_errors)
    try:
        await publisher.start()
        yield publisher
    finally:
        await publisher.close()


@asynccontextmanager
async def open_broker_probe(settings: Settings, metrics: Metrics) -> AsyncIterator[BrokerProbe]:
    """The probe of Kafka for readiness; closed at the end."""
    probe = BrokerProbe(settings, errors=metrics.kafka_errors)
    try:
        yield probe
    finally:
        await probe.close()
