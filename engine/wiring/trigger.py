"""Builds the role trigger."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog
from redis.exceptions import RedisError

from catalog.errors import IndexWriteError
from catalog.index.drain import DrainResult, drain_once
from engine.formats.decoders import detection_decoders
from engine.kafka.topics import Topics
from engine.process.failures import database_may_recover, redis_may_recover
from engine.process.health import PROBE
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import Claims
from engine.redis.decisions import DecisionStore, TailStore
from engine.redis.figures import FigureStore
from engine.redis.visits import VisitStore
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.cycle import ROLE, Cycle
from engine.trigger.decision_counts import DecisionCounter
from engine.trigger.decision_feed import DecisionFeed
from engine.trigger.intake import Intake
from engine.trigger.message import MessageWriter
from engine.trigger.partition import InFlightBytes, TriggerRole
from engine.trigger.place_cache import PlaceCache
from engine.trigger.place_index import IndexWatch, PlaceIndex
from engine.trigger.visits import VisitTracking
from engine.wiring.parts import ProcessParts, Role, Stores, publishing_consumer

if TYPE_CHECKING:
    from engine.trigger.record_filter import RecordFilter

log = structlog.get_logger(__name__)

CACHED_BEACONS = 200_000
CACHED_BYTES = 256 * 1024 * 1024  # of campaigns: their content, and 900 bytes each
CACHE_SECONDS = 300.0  # age at which a cached beacon is read again
MOST_RECORDS = 2000  # in a batch; more are no faster, and take memory
HELD_CLAIMS = 250_000  # four times as many if devices have many
_REBUILD_PAUSE = 1.0


def build_trigger(parts: ProcessParts) -> Role:
    """The role with the watch that keeps its cache up to date; nothing is started."""
    settings, clocks = parts.settings, parts.clocks
    trigger = trigger_role(parts)
    intake = trigger.intake
    index = intake.index
    consumer = publishing_consumer(
        parts,
        ROLE,
        worker_for=trigger.worker_for,
        topics=list(intake.decoders),
        has_room=trigger.in_flight.has_room,
        batch_records=trigger.batch_records,
        in_flight_records=4 * trigger.batch_records,
    )
    watch = IndexWatch(
        index=index,
        rebuild=partial(_rebuild, parts.stores, parts.metrics),
        max_age=CACHE_SECONDS,
        metrics=parts.metrics,
        **parts.stores.redis_options,
    )
    return Role(
        name=ROLE,
        consumer=consumer,
        background={
            "index watch": watch.run,
            "decision feed": intake.feed.run,
            "decision counter": intake.counter.run,
        },
        checks={
            "index_built": index.built.is_set,
            # With a larger skew nothing fires (engine.wiring.run).
            "clock": lambda: clocks.agrees_within(settings.max_detection_age),
        },
        needs={"redis_writes"},
    )


def trigger_role(parts: ProcessParts, clock: Callable[[], float] = time.time) -> TriggerRole:
    """The objects that the partitions of the process share; `clock` gives epoch seconds."""
    settings, metrics = parts.settings, parts.metrics
    in_flight = InFlightBytes(settings.in_flight_bytes)
    cache = PlaceCache(CACHED_BEACONS, CACHED_BYTES)
    index = PlaceIndex(cache=cache, metrics=metrics, **parts.stores.redis_options)
    feed = DecisionFeed(
        tail=TailStore(**parts.stores.redis_options),
        store=DecisionStore(most=settings.recent_decisions, **parts.stores.redis_options)
        if settings.recent_decisions
        else None,
        metrics=metrics,
        clock=clock,
    )
    store = FigureStore(**parts.stores.redis_options)
    counter = DecisionCounter(metrics=metrics, store=store, clock=clock)
    topics, devices = Topics.of(settings.topic_prefix), parts.device_lookup()
    intake = Intake(
        decoders=detection_decoders(
            settings, limited=True, registry_errors=metrics.registry_errors
        ),
        filter=_record_filter(settings, cache),
        index=index,
        devices=devices,
        feed=feed,
        counter=counter,
        metrics=metrics,
        max_age=settings.max_detection_age,
        clock=clock,
    )
    cycle = Cycle(
        index=index,
        # A record that is older than max_detection_age triggers nothing when it comes again.
        claims=Claims(
            retain=2 * settings.max_detection_age, metrics=metrics, **parts.stores.redis_options
        ),
        devices=devices,
        writer=MessageWriter(
            topics=topics, lifetime=settings.notification_lifetime, tracer=parts.tracer
        ),
        letters=parts.dead_letters(clock),
        feed=feed,
        counter=counter,
        metrics=metrics,
        max_age=settings.max_detection_age,
        cycle_bytes=in_flight.cycle_bytes,
        clock=clock,
    )
    return TriggerRole(
        intake=intake,
        cycle=cycle,
        claim_memory=ClaimMemory(HELD_CLAIMS),
        in_flight=in_flight,
        batch_records=min(settings.batch_records, MOST_RECORDS),
        tracking=VisitTracking(
            index=index,
            devices=devices,
            publisher=parts.publisher,
            topic=topics.presence,
            counter=counter,
            metrics=metrics,
            path_loss_exponent=settings.path_loss_exponent,
            max_age=settings.max_detection_age,
            clock=clock,
            open_store=partial(VisitStore, metrics=metrics, **parts.stores.redis_options),
        ),
    )


def _record_filter(settings: Settings, cache: PlaceCache) -> "RecordFilter | None":
    try:
        from engine.trigger.record_filter import RecordFilter
    except ImportError:
        log.info("not compiled: the trigger takes longer", module="record_filter")
        return None
    return RecordFilter(cache, settings.max_detection_age, settings.path_loss_exponent)


async def _rebuild(stores: Stores, metrics: Metrics) -> None:
    """Rebuild the index if it is missing or has lost writes.

    While SQL does not answer, or another process writes the index, return after a pause: Redis may
    be complete, which is enough.
    """
    listener = metrics.index_lag.set
    try:
        outcome = await drain_once(stores.database, stores.index_store, on_lag=listener)
        if outcome is DrainResult.BUSY:
            await asyncio.sleep(_REBUILD_PAUSE)
    except Exception as error:  # permanent errors stop the process
        flushed_or_overtaken = isinstance(error, IndexWriteError)
        if not (flushed_or_overtaken or database_may_recover(error) or redis_may_recover(error)):
            raise
        of_redis = flushed_or_overtaken or isinstance(error, RedisError)
        # (The server watch makes this kind of call too, so it notices the end of the outage.)
        (metrics.redis_errors if of_redis else metrics.sql_errors).failed(error, PROBE)
        await asyncio.sleep(_REBUILD_PAUSE)
