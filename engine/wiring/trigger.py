"""Builds the role trigger."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import structlog
from aiokafka import TopicPartition
from redis.exceptions import RedisError

from catalog.errors import IndexMissingError, StaleWriterError
from catalog.index.drain import rebuild_if_missing
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.detection_decoder import detection_decoders
from engine.kafka.partition_worker import PartitionWorker
from engine.kafka.positions import Position
from engine.kafka.topics import Topics
from engine.kafka.transactional_worker import TransactionalWorker
from engine.kafka.transactions import TransactionalPublisher
from engine.process.failures import database_may_recover, redis_may_recover
from engine.process.health import PROBE
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import Claims, ClaimUpdater
from engine.redis.tail_store import TailStore
from engine.trigger import grants as interpreted
from engine.trigger.beacon_cache import BeaconCache
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.claim_step import ClaimStep
from engine.trigger.compose import Composer
from engine.trigger.decision_notes import DecisionNotes
from engine.trigger.decision_record import DecisionWatcher
from engine.trigger.decision_sums import DecisionSums
from engine.trigger.decision_tail import DecisionTail
from engine.trigger.decode_step import DecodeStep, EarlyRefusals
from engine.trigger.fair_turns import FairTurns
from engine.trigger.grants import Granting
from engine.trigger.in_flight import InFlightBytes, value_bytes
from engine.trigger.index_watch import IndexWatch
from engine.trigger.message_writer import MessageWriter
from engine.trigger.partition import TriggerRole
from engine.trigger.pipeline import ROLE, TriggerPipeline
from engine.trigger.publish_step import PublishStep
from engine.wiring.explain import build_decision_store
from engine.wiring.figures import figure_sums
from engine.wiring.kafka import role_consumer, transactional_consumer
from engine.wiring.role import ProcessParts, Role
from engine.wiring.stores import Stores

log = structlog.get_logger(__name__)

_REBUILD_PAUSE = 1.0


def build_trigger(parts: ProcessParts) -> Role:
    """The role with the watch that keeps its cache up to date; nothing is started."""
    settings, clocks = parts.settings, parts.clocks
    trigger = trigger_role(parts)
    index = trigger.pipeline.index
    background = {"index watch": _watch(parts, index).run}
    background |= {watcher.name: watcher.run for watcher in trigger.pipeline.watchers}
    if (sums := trigger.pipeline.sums) is not None:
        background[sums.name] = sums.run
    if settings.delivery == "exactly_once":
        make, transactions = transactional_consumer(
            parts, ROLE, partial(_transactional_worker, trigger)
        )
        background["transactions"] = transactions.run
    else:
        make = partial(role_consumer(parts, ROLE), worker_for=trigger.worker_for)
    consumer = make(
        topics=list(trigger.pipeline.decode.decoders),
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
            # With a larger skew nothing fires (engine.process.clock_skew).
            "clock": lambda: clocks is None or clocks.agrees_within(settings.max_detection_age),
        },
        needs={"redis_writes"},
    )


def trigger_role(parts: ProcessParts, clock: Callable[[], float] = time.time) -> TriggerRole:
    """The objects that the partitions of the process share; `clock` gives epoch seconds."""
    settings = parts.settings
    in_flight = InFlightBytes(settings.in_flight_bytes)
    index, watchers = _index(parts), list(_watchers(parts, clock))
    granting: Granting = _compiled(settings, "compiled_grants") or interpreted
    sums, claims = _sums(parts, clock), _claim_step(parts, granting, clock)
    pipeline = TriggerPipeline(
        decode=_decode_step(parts, index.cache, watchers, clock),
        granting=granting,
        index=index,
        claims=claims,
        composer=_composer(parts, in_flight.turn_bytes, clock),
        publish=_publish_step(parts, claims, sums, clock),
        metrics=parts.metrics,
        watchers=watchers,
        sums=sums,
        max_age=settings.max_detection_age,
        clock=clock,
    )
    return TriggerRole(
        pipeline=pipeline,
        claim_memory=ClaimMemory(settings.held_claims),
        turns=FairTurns(in_flight.turns),
        in_flight=in_flight,
        batch_records=settings.batch_records,
    )


def _transactional_worker(
    trigger: TriggerRole,
    partition: TopicPartition,
    publisher: TransactionalPublisher,
    place: Position,
    on_progress: Callable[[], None],
) -> PartitionWorker:
    """A worker that puts a transaction around each batch of the role's own worker."""
    return TransactionalWorker(
        partition,
        publisher=publisher,
        inner=partial(trigger.publishing_with(publisher).worker_for, partition),
        topic_id=place.topic_id,
        batch_records=trigger.batch_records,
        on_progress=on_progress,
        hold=lambda records, sign: trigger.in_flight.hold(sign * value_bytes(records)),
    )


def _redis_options(parts: ProcessParts) -> dict[str, Any]:
    settings = parts.settings
    return {
        "redis": parts.stores.redis,
        "prefix": settings.redis_prefix,
        "deadline": settings.redis_timeout,
    }


def _index(parts: ProcessParts) -> BeaconIndex:
    settings = parts.settings
    cache = BeaconCache(settings.index_cache_beacons, settings.index_cache_bytes)
    return BeaconIndex(cache=cache, metrics=parts.metrics, **_redis_options(parts))


def _decode_step(
    parts: ProcessParts,
    cache: BeaconCache,
    watchers: Sequence[DecisionWatcher],
    clock: Callable[[], float],
) -> DecodeStep:
    errors = parts.metrics.registry_errors
    return DecodeStep(
        decoders=detection_decoders(parts.settings, limited=True, registry_errors=errors),
        refusals=_refusals(parts.settings, cache),
        watchers=watchers,
        clock=clock,
    )


def _refusals(settings: Settings, cache: BeaconCache) -> EarlyRefusals | None:
    compiled = _compiled(settings, "refusal_filter")
    if compiled is None:
        return None
    refusals: EarlyRefusals = compiled.RefusalFilter(
        cache, settings.max_detection_age, settings.path_loss_exponent
    )
    return refusals


def _message_writer(parts: ProcessParts) -> MessageWriter:
    settings = parts.settings
    compiled = _compiled(settings, "compiled_writer")
    writer: type[MessageWriter] = compiled.CompiledMessageWriter if compiled else MessageWriter
    return writer(
        topics=Topics.named(settings.topic_prefix),
        lifetime=settings.notification_lifetime,
        tracer=parts.tracer,
    )


def _compiled(settings: Settings, name: str) -> Any | None:
    """A module that Cython compiles; None if it was not compiled, or is turned off."""
    if not settings.compiled:
        return None
    try:
        return import_module(f"engine.trigger.{name}")
    except ImportError:
        log.info("not compiled: the trigger takes longer", module=name)
        return None


def _claim_step(parts: ProcessParts, granting: Granting, clock: Callable[[], float]) -> ClaimStep:
    # A record that is older than max_detection_age triggers nothing when it is delivered again.
    retain = 2 * parts.settings.max_detection_age
    claims = Claims(retain=retain, metrics=parts.metrics, **_redis_options(parts))
    updater = ClaimUpdater(**_redis_options(parts))
    return ClaimStep(
        claims=claims,
        updater=updater,
        metrics=parts.metrics,
        clock=clock,
        granting=granting,
    )


def _composer(parts: ProcessParts, turn_bytes: int, clock: Callable[[], float]) -> Composer:
    return Composer(
        writer=_message_writer(parts),
        devices=parts.device_lookup(),
        turn_bytes=turn_bytes,
        clock=clock,
    )


def _publish_step(
    parts: ProcessParts, claims: ClaimStep, sums: DecisionSums | None, clock: Callable[[], float]
) -> PublishStep:
    letters = DeadLetterPublisher(
        topic=Topics.named(parts.settings.topic_prefix).dead_letters,
        publisher=parts.publisher,
        metrics=parts.metrics,
        clock=clock,
    )
    return PublishStep(
        letters=letters, claims=claims, metrics=parts.metrics, sums=sums, clock=clock
    )


def _watchers(parts: ProcessParts, clock: Callable[[], float]) -> Iterator[DecisionWatcher]:
    """The receivers of decisions: the notes of devices (unless RECENT_DECISIONS is 0), the tail."""
    if parts.settings.recent_decisions:
        store = build_decision_store(parts.settings, parts.stores.redis)
        yield DecisionNotes(store=store, metrics=parts.metrics, clock=clock)
    watched = TailStore(**_redis_options(parts))
    yield DecisionTail(store=watched, metrics=parts.metrics, clock=clock)


def _sums(parts: ProcessParts, clock: Callable[[], float]) -> DecisionSums | None:
    sums = figure_sums(parts, clock)
    return None if sums is None else DecisionSums(sums)


def _watch(parts: ProcessParts, index: BeaconIndex) -> IndexWatch:
    return IndexWatch(
        index=index,
        rebuild=lambda: _rebuild(parts.stores, parts.metrics),
        max_age=parts.settings.index_cache_age,
        metrics=parts.metrics,
        **_redis_options(parts),
    )


async def _rebuild(stores: Stores, metrics: Metrics) -> None:
    """Rebuild the index if it is missing or has lost writes.

    While SQL does not answer, log that and return: Redis may be complete, which is enough.
    """
    try:
        await rebuild_if_missing(stores.database, stores.index_store, on_lag=metrics.index_lag.set)
    except Exception as error:  # permanent errors stop the process
        flushed_or_overtaken = isinstance(error, IndexMissingError | StaleWriterError)
        if not (flushed_or_overtaken or database_may_recover(error) or redis_may_recover(error)):
            raise
        of_redis = flushed_or_overtaken or isinstance(error, RedisError)
        # (The server watch makes this kind of call too, so it notices the end of the outage.)
        (metrics.redis_errors if of_redis else metrics.sql_errors).failed(error, PROBE)
        await asyncio.sleep(_REBUILD_PAUSE)
