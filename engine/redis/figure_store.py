"""Stores the outcomes of detections in Redis, added up by company and day, for a month.

A company's day is one hash of sums. The number of its fields is bounded, for any number of
campaigns and of writing processes.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, time, timedelta
from importlib.resources import files
from typing import Any, NamedTuple

from catalog.redis_connection import RedisClient
from rules.day_figures import CampaignReason, DayFigures
from rules.model import Reason

KEPT_DAYS = 32
# 24 hours of two kinds, 16 reasons, and campaigns by reason for the rest.
MOST_FIELDS = 512
_KEPT_MS = KEPT_DAYS * 24 * 3600 * 1000
_ADD = files("engine.redis").joinpath("scripts/add_figures.lua").read_text(encoding="utf-8")


class CompanyDay(NamedTuple):
    """The company and the day (UTC) of sums."""

    company_id: int
    day: date


class FigureStore:
    """Adds to sums and reads them. `deadline` is in seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = prefix
        self._deadline = deadline

    async def add(self, figures: Mapping[CompanyDay, DayFigures]) -> list[CompanyDay]:
        """Add these sums, in one round trip (on a cluster one for each node).

        Returns those that Redis refused. After TimeoutError some may have been added.
        """
        pipeline: Any = self._redis.pipeline(transaction=False)
        for place, day in figures.items():
            arguments = [part for pair in _fields(day) for part in pair]
            # (EVAL, not EVALSHA: a retry after NOSCRIPT would add the other sums twice.)
            pipeline.execute_command(
                "EVAL", _ADD, 1, self._key(place), _KEPT_MS, MOST_FIELDS, *arguments
            )
        async with asyncio.timeout(self._deadline):
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return [
            place
            for place, answer in zip(figures, answers, strict=True)
            if isinstance(answer, Exception)
        ]

    async def read(self, company_id: int, first: date, last: date) -> dict[date, DayFigures]:
        """The sums of a company's days from `first` to `last`, both included; no empty days."""
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        pipeline: Any = self._redis.pipeline(transaction=False)
        for day in days:
            pipeline.hgetall(self._key(CompanyDay(company_id, day)))
        async with asyncio.timeout(self._deadline):
            answers: Sequence[Mapping[bytes, bytes]] = await pipeline.execute()
        return {day: _read(found) for day, found in zip(days, answers, strict=True) if found}

    def _key(self, place: CompanyDay) -> str:
        """The key of a day. The hash tag keeps a company's days in one slot of a cluster."""
        return f"{self._prefix}figures:{{{place.company_id}}}:{place.day.isoformat()}"


def _fields(figures: DayFigures) -> Iterator[tuple[str, int]]:
    for hour, count in figures.detections.items():
        yield f"d:{hour}", count
    for hour, count in figures.notifications.items():
        yield f"n:{hour}", count
    for reason, count in figures.reasons.items():
        yield f"r:{reason.value}", count
    for (campaign, reason), count in figures.campaigns.items():
        yield f"c:{campaign}:{reason.value}", count


def _read(fields: Mapping[bytes, bytes]) -> DayFigures:
    """The sums in a hash. Fields of another version of the engine are ignored."""
    figures = DayFigures()
    for field, value in fields.items():
        with suppress(ValueError):
            _read_field(figures, field.decode(), int(value))
    return figures


def _read_field(figures: DayFigures, field: str, count: int) -> None:
    kind, _, name = field.partition(":")
    if kind in ("d", "n"):
        hours = figures.detections if kind == "d" else figures.notifications
        hours[time(int(name)).hour] = count
    elif kind == "r":
        figures.reasons[Reason(name)] = count
    elif kind == "c":
        campaign, _, reason = name.partition(":")
        figures.campaigns[CampaignReason(int(campaign), Reason(reason))] = count
