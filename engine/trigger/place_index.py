"""The index in Redis: resolves places through the process's cache, and keeps that up to date.

The index is complete: if the marker beside a missing entry says that the index is built, the place
does not exist. Without the marker nothing is decided.
"""

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import structlog

from catalog.index.entries import (
    BUCKETS,
    MARKER_FIELD,
    REBUILT,
    ApplicationEntry,
    ConnectorEntry,
    IndexKeys,
    PlaceEntry,
    beacon_field,
    bucket,
    campaign_field,
    connector_field,
    decode_application,
    decode_campaign,
    decode_connector,
    decode_geofences,
    decode_place,
    decode_rules,
    geofence_field,
    rules_field,
    tag_field,
)
from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey
from engine.process.failures import Backoff, redis_may_recover, retry
from engine.process.metrics import Metrics
from engine.redis.store import RedisStore
from engine.trigger.place_cache import IndexedPlace, PlaceCache, assemble
from rules.geofences import GeofenceGrid
from rules.model import CampaignSnapshot, CompanyRules, Place

log = structlog.get_logger(__name__)

_BLOCK_MS = 250  # also the time in which a missing marker is noticed without any detection
_MOST_CHANGES = 1000
_MOST_REFRESHED = 500
_CHANGES = "changes of the index"

MessageId = tuple[int, int]


class IndexNotBuiltError(Exception):
    """A bucket has no marker: Redis lost its memory, or the index was never built.

    Resolving waits until the index is built.
    """


# A key is None while the company of a position or a tag is not known; no place has that key.
Places = Mapping[PlaceKey | None, IndexedPlace | None]
Loaded = dict[Any, Any]  # by key, or by field where it is data of a company


@dataclass(kw_only=True, eq=False)
class PlaceIndex(RedisStore):
    """Resolves keys of places. `built` is cleared when a marker is missing; IndexWatch sets it."""

    cache: PlaceCache
    metrics: Metrics

    def __post_init__(self) -> None:
        self.built = asyncio.Event()
        self._loads: dict[Any, asyncio.Task[Any]] = {}
        self._keys = IndexKeys(self.prefix)
        lookups = self.metrics.index_lookups
        self._process_hit = lookups.labels("process", "hit")
        self._process_miss = lookups.labels("process", "miss")
        self._redis_hit = lookups.labels("redis", "hit")
        self._redis_miss = lookups.labels("redis", "unknown")

    async def resolve(self, keys: Collection[PlaceKey], lookups: int) -> Places:
        """Places for `keys`, None for unknown ones; without I/O if all are cached.

        Waits while Redis does not answer or the index is not built. `lookups` is the number of
        detections that need the keys, for the metric.
        """
        return await self._find(keys, lookups)

    async def company_data(self, fields: Collection[str]) -> Mapping[str, Any]:
        """Data of companies by field, None for what is unknown; waits as `resolve`."""
        return await self._find(fields, len(fields))

    async def _find(self, keys: Collection[Any], lookups: int) -> Mapping[Any, Any]:
        known = self.cache.known
        missing = [key for key in keys if key not in known]
        self._process_hit.inc(max(0, lookups - len(missing)))
        if not missing:
            return known
        self._process_miss.inc(len(missing))
        found = {key: known[key] for key in keys if key in known}
        for load in self._loads_of(missing):
            found |= await asyncio.shield(load)  # others may wait for it too
        return found

    def _loads_of(self, keys: list[Any]) -> "set[asyncio.Task[Loaded]]":
        """The loads that bring these keys; those that are under way are shared.

        After a start all partitions need the same places at once. Loads do not follow each other,
        because one company's places may not be loadable in time.
        """
        new = [key for key in keys if key not in self._loads]
        if new:
            task = asyncio.create_task(self._load_when_built(new), name="index")
            self._loads.update(dict.fromkeys(new, task))
            task.add_done_callback(lambda _: [self._loads.pop(key) for key in new])
        return {self._loads[key] for key in keys}

    async def look_up(self, key: PlaceKey) -> IndexedPlace | None:
        """One place as Redis has it now. Raises the errors of Redis instead of waiting.

        These are IndexNotBuiltError, RedisError, OSError and TimeoutError.
        """
        found: IndexedPlace | None = (await self._load([key]))[key]
        return found

    async def refresh(self, keys: list[Any]) -> None:
        """Read cached entries again; raises as `look_up` does."""
        version = self.cache.version
        self.cache.refresh(await self._load(keys), version)

    async def _load_when_built(self, keys: list[Any]) -> Loaded:
        while True:
            await self.built.wait()
            version = self.cache.version
            try:
                loaded = await retry(
                    partial(self._load, keys), self.metrics.redis_errors, "reading the index"
                )
            except IndexNotBuiltError:
                self.built.clear()
                continue
            self.cache.keep(loaded, version)
            unknown = sum(entry is None for entry in loaded.values())
            self._redis_hit.inc(len(loaded) - unknown)
            self._redis_miss.inc(unknown)
            return loaded

    async def _load(self, keys: list[Any]) -> Loaded:
        async with asyncio.timeout(self.deadline):
            fields = {key: key if isinstance(key, str) else _field_of(key) for key in keys}
            values = await self._read(list(fields.values()))
            found = {key: value for key, field in fields.items() if (value := values[field])}
            entries = {k: decode_place(v) for k, v in found.items() if not isinstance(k, str)}
            campaigns = await self._campaigns(entries.values())
            connectors, rules = await self._of_companies(entries.values(), campaigns)
        loaded: Loaded = dict.fromkeys(keys)
        for key, value in found.items():
            if key in entries:
                loaded[key] = assemble(entries[key], campaigns, connectors, rules)
            else:
                loaded[key] = await _company_data(key, value)
        return loaded

    async def _campaigns(self, entries: Iterable[PlaceEntry[Place]]) -> dict[int, CampaignSnapshot]:
        ids = {i for entry in entries for i in entry.campaigns}
        values = await self._read([campaign_field(i) for i in ids])
        campaigns = [decode_campaign(value) for value in values.values() if value is not None]
        return self.cache.reuse({campaign.id: campaign for campaign in campaigns})

    async def _of_companies(
        self,
        entries: Iterable[PlaceEntry[Place]],
        campaigns: Mapping[int, CampaignSnapshot],
    ) -> tuple[dict[int, ConnectorEntry], dict[int, CompanyRules]]:
        """The connectors that the campaigns need, and the rules, by company."""
        companies = {entry.place.venue.company_id for entry in entries}
        calling = {
            entry.place.venue.company_id
            for entry in entries
            if any(i in campaigns and campaigns[i].format == "connector" for i in entry.campaigns)
        }
        fields = {connector_field(company): company for company in calling}
        ruled = {rules_field(company): company for company in companies}
        values = await self._read([*fields, *ruled])
        connectors = {fields[f]: decode_connector(v) for f in fields if (v := values[f])}
        rules = {ruled[f]: decode_rules(v) for f in ruled if (v := values[f])}
        return connectors, rules

    async def _read(self, fields: list[str]) -> dict[str, bytes | None]:
        """Fields by name, in one round trip; each read includes its bucket's marker."""
        if not fields:
            return {}
        by_bucket: dict[int, list[str]] = {}
        for field in fields:
            by_bucket.setdefault(bucket(field), []).append(field)
        pipeline = self._pipeline()
        for number, names in by_bucket.items():
            pipeline.hmget(self._keys.bucket(number), [MARKER_FIELD, *names])
        values: dict[str, bytes | None] = {}
        for names, reply in zip(by_bucket.values(), await pipeline.execute(), strict=True):
            marker, *found = reply
            if marker is None:
                raise IndexNotBuiltError
            values.update(zip(names, found, strict=True))
        return values


async def _company_data(field: str, value: bytes) -> ApplicationEntry | GeofenceGrid | CompanyRules:
    if field.startswith("p:"):
        return await asyncio.to_thread(_grid, value)  # a tenth of a second for 10,000 geofences
    return decode_application(value) if field.startswith("a:") else decode_rules(value)


def _grid(value: bytes) -> GeofenceGrid:
    return GeofenceGrid(decode_geofences(value).circles)


def _field_of(key: PlaceKey) -> str:
    if isinstance(key, BeaconKey):
        return beacon_field(*key)
    return geofence_field(*key) if isinstance(key, GeofenceKey) else tag_field(*key)


@dataclass(kw_only=True, eq=False)
class IndexWatch(RedisStore):
    """A background task; each process has one.

    `rebuild` fills the index from SQL when a marker is missing or names another catalog. It takes a
    lock, so any number of processes may call it. If SQL does not answer, it logs that and returns,
    and the watch calls it again.
    """

    index: PlaceIndex
    rebuild: Callable[[], Awaitable[None]]
    max_age: float
    metrics: Metrics

    def __post_init__(self) -> None:
        self._keys = IndexKeys(self.prefix)
        self._errors = self.metrics.redis_errors
        self._to_refresh: Iterator[Any] = iter(())
        self._due = 0.0

    async def run(self) -> None:
        """Watch until cancelled. Raises errors that neither time nor a rebuild mends."""
        backoff = Backoff()
        warned = False
        await self.rebuild()
        while True:
            try:
                if await self._newest_change() is not None:
                    backoff.reset()
                    warned = False
                    await self._follow()
                self.index.built.clear()
                if not warned:
                    log.warning("the index is missing from Redis, rebuilding it from SQL")
                warned = True
                await self.rebuild()
            except Exception as error:  # temporary errors are retried, others stop the process
                if not redis_may_recover(error):
                    raise
                self._errors.failed(error, _CHANGES)
                await backoff.pause()

    async def _follow(self) -> None:
        """Apply changes until the index is missing.

        The cache is dropped first, so that earlier changes need not be read.
        """
        position = await self._newest_change() or (0, 0)
        self.index.cache.drop_all()
        clock = asyncio.get_running_loop().time
        refreshed_at = clock()
        while (newest := await self._newest_change()) is not None:
            self.index.built.set()
            self._errors.answered(_CHANGES)
            if newest < position:  # the stream is an older copy, and may have lost changes
                self.index.cache.drop_all()
                position = newest
            position = await self._apply_changes(position)
            await self._refresh(clock() - refreshed_at)
            refreshed_at = clock()

    async def _refresh(self, seconds: float) -> None:
        """Read a share of the cached places again: all of them once in `max_age`.

        So no place is older than that, whatever message was lost, and no detection waits for it.
        """
        cache = self.index.cache
        self._due += len(cache.known) * seconds / self.max_age
        share = min(int(self._due), _MOST_REFRESHED)
        self._due = min(self._due - share, _MOST_REFRESHED)
        keys = list(islice(self._to_refresh, share))
        if len(keys) < share:
            self._to_refresh = iter(list(cache.known))
        if keys:
            with suppress(IndexNotBuiltError):  # the next look at the markers finds it
                await self.index.refresh(keys)

    async def _newest_change(self) -> MessageId | None:
        """The newest message of the stream of changes; None if a bucket is not built."""
        pipeline = self._pipeline()
        for number in range(BUCKETS):
            pipeline.hget(self._keys.bucket(number), MARKER_FIELD)
        pipeline.xrevrange(self._keys.changes, count=1)
        *markers, last = await self._answer(pipeline.execute())
        if None in markers:
            return None
        return _parse_id(last[0][0]) if last else (0, 0)

    async def _apply_changes(self, position: MessageId) -> MessageId:
        after = "{}-{}".format(*position)
        messages = await self._read_stream(self._keys.changes, after, _MOST_CHANGES, _BLOCK_MS)
        if not messages:
            return position
        self._apply(fields[b"keys"] for _, fields in messages)
        return _parse_id(messages[-1][0])

    def _apply(self, changes: Iterable[bytes]) -> None:
        """Drop the changed places, in one pass over the cache."""
        changed: set[str] = set()
        drop_all = False
        for keys in changes:
            if keys == REBUILT.encode():
                drop_all = True
            else:
                changed.update(msgspec.json.decode(keys, type=list[str]))
        if drop_all:
            self.index.cache.drop_all()
        else:
            self.index.cache.drop(changed)


def _parse_id(message: bytes) -> MessageId:
    """A message's id as numbers, which compare in the stream's order."""
    milliseconds, _, sequence = message.partition(b"-")
    return int(milliseconds), int(sequence)
