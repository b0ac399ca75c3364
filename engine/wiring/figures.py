"""Builds the objects that add up outcomes of detections, and those that read the sums."""

from collections.abc import Callable

from catalog.redis_connection import RedisClient
from engine.process.settings import Settings
from engine.redis.figure_store import FigureStore
from engine.redis.figure_sums import FigureSums
from engine.wiring.role import ProcessParts


def figure_sums(parts: ProcessParts, clock: Callable[[], float]) -> FigureSums | None:
    """Sums to be written; None with DECISION_FIGURES=false. `clock` gives epoch seconds."""
    if not parts.settings.decision_figures:
        return None
    store = build_figure_store(parts.settings, parts.stores.redis)
    return FigureSums(store=store, metrics=parts.metrics, clock=clock)


def build_figure_store(settings: Settings, redis: RedisClient) -> FigureStore:
    """The store of companies' figures on an open connection."""
    return FigureStore(redis=redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout)
