"""The role trigger, put together."""

import asyncio
from collections.abc import Callable
from functools import partial

from aiokafka import TopicPartition
from redis.exceptions import RedisError

from catalog.errors import IndexMissingError, StaleWriterError
from catalog.index.drain import rebuild_if_missing
from engine.kafka.exactly_once import TransactionalWorker
from engine.kafka.partition_worker import PartitionWorker
from engine.kafka.positions import Position
from engine.kafka.topics import Topics
from engine.kafka.transactions import TransactionalPublisher
from engine.process.failures import database_may_recover, redis_may_recover
from engine.process.health import PROBE
from engine.process.metrics import Metrics
from engine.redis.claims import Claims, ClaimUpdater
from engine.trigger.beacon_cache import BeaconCache
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.in_flight import size_of
from engine.trigger.index_watch import IndexWatch
from engine.trigger.pipeline import ROLE, Trigger
from engine.wiring.kafka import role_consumer, transactional_consumer
from engine.wiring.role import ProcessParts, Role
from engine.wiring.stores import Stores

_REBUILD_PAUSE = 1.0


def build_trigger(parts: ProcessParts) -> Role:
    """The trigger and the watch that keeps its view of the index fresh; nothing is started."""
    settings = parts.settings
    topics = Topics.named(settings.topic_prefix)
    index = _index(parts)
    trigger = Trigger(
        settings=settings,
        topics=topics,
        index=index,
        claims=_claims(parts),
        settler=ClaimUpdater(
            redis=parts.stores.redis,
            prefix=settings.redis_prefix,
            deadline=settings.redis_timeout,
        ),
        devices=parts.device_lookup(),
        publisher=parts.publisher,
        metrics=parts.metrics,
    )
    background = {"index watch": _watch(parts, index).run}
    if settings.delivery == "exactly_once":
        make, transactions = transactional_consumer(
            parts, ROLE, partial(_transactional_worker, trigger)
        )
        background["transactions"] = transactions.run
    else:
        make = partial(role_consumer(parts, ROLE), worker_for=trigger.for_partition)
    consumer = make(
        topics=[topics.detections],
        has_room=trigger.in_flight.has_room,
        batch_records=settings.batch_records,
        in_flight_records=settings.in_flight_records,
    )
    return Role(
        name=ROLE,
        consumer=consumer,
        background=background,
        checks={
            "partitions_assigned": lambda: consumer.assigned,
            "index_built": index.built.is_set,
            "clock": lambda: _fires(parts),
        },
        needs={"redis_writes"},
    )


def _fires(parts: ProcessParts) -> bool:
    """Whether this process's clock lets anything fire: see engine.process.clock_skew."""
    clocks = parts.clocks
    return clocks is None or clocks.agrees_within(parts.settings.max_detection_age)


def _transactional_worker(
    trigger: Trigger,
    partition: TopicPartition,
    publisher: TransactionalPublisher,
    place: Position,
    on_progress: Callable[[], None],
) -> PartitionWorker:
    """One that puts a transaction around each batch of the role's own worker."""
    return TransactionalWorker(
        partition,
        publisher=publisher,
        inner=partial(trigger.publishing_with(publisher).for_partition, partition),
        topic_id=place.topic_id,
        batch_records=trigger.settings.batch_records,
        on_progress=on_progress,
        hold=lambda records, sign: trigger.in_flight.hold(sign * size_of(records)),
    )


def _index(parts: ProcessParts) -> BeaconIndex:
    settings = parts.settings
    return BeaconIndex(
        redis=parts.stores.redis,
        prefix=settings.redis_prefix,
        cache=BeaconCache(settings.index_cache_beacons, settings.index_cache_bytes),
        deadline=settings.redis_timeout,
        metrics=parts.metrics,
    )


def _claims(parts: ProcessParts) -> Claims:
    settings = parts.settings
    return Claims(
        redis=parts.stores.redis,
        prefix=settings.redis_prefix,
        # What is older than max_detection_age triggers nothing when it is delivered again.
        retain=2 * settings.max_detection_age,
        deadline=settings.redis_timeout,
        metrics=parts.metrics,
    )


def _watch(parts: ProcessParts, index: BeaconIndex) -> IndexWatch:
    settings = parts.settings
    return IndexWatch(
        redis=parts.stores.redis,
        prefix=settings.redis_prefix,
        index=index,
        rebuild=lambda: _rebuild(parts.stores, parts.metrics),
        max_age=settings.index_cache_age,
        deadline=settings.redis_timeout,
        metrics=parts.metrics,
    )


async def _rebuild(stores: Stores, metrics: Metrics) -> None:
    """Rebuild the index if it is missing or has lost writes. While SQL does not answer, or hangs,
    say so and leave it: Redis may be complete, and is enough then."""
    try:
        await rebuild_if_missing(stores.database, stores.index_store, on_lag=metrics.index_lag.set)
    except Exception as error:  # sorted: the watch asks again, or the process stops
        flushed_or_overtaken = isinstance(error, IndexMissingError | StaleWriterError)
        if not (flushed_or_overtaken or database_may_recover(error) or redis_may_recover(error)):
            raise
        of_redis = flushed_or_overtaken or isinstance(error, RedisError)
        # (A kind of call that succeeds again by itself: the server watch makes it, too.)
        (metrics.redis_errors if of_redis else metrics.sql_errors).failed(error, PROBE)
        await asyncio.sleep(_REBUILD_PAUSE)
