"""Resolves beacons from the index in Redis, through the process's cache.

The index is complete: if the marker beside a missing entry says that the index is built, the beacon
does not exist. Without the marker nothing is decided.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from catalog.index.entries import (
    MARKER_FIELD,
    BeaconEntry,
    ConnectorEntry,
    IndexKeys,
    beacon_field,
    bucket,
    campaign_field,
    connector_field,
    decode_beacon,
    decode_campaign,
    decode_connector,
)
from catalog.redis_connection import RedisClient
from engine.kafka.detections import BeaconKey
from engine.process.metrics import Metrics
from engine.process.retry import retry
from engine.trigger.beacon_cache import BeaconCache, IndexedBeacon, assemble
from engine.trigger.load_sharing import LoadSharing
from rules.model import CampaignSnapshot


class IndexNotBuiltError(Exception):
    """A bucket has no marker: Redis lost its memory, or the index was never built.

    Resolving waits until the index is built.
    """


class BeaconIndex:
    """Resolves beacon keys. `built` is cleared when a marker is missing; IndexWatch sets it."""

    def __init__(
        self,
        *,
        redis: RedisClient,
        prefix: str,
        cache: BeaconCache,
        deadline: float,
        metrics: Metrics,
    ) -> None:
        self.built = asyncio.Event()
        self.cache = cache
        self._loads = LoadSharing()
        self._redis = redis
        self._keys = IndexKeys(prefix)
        self._deadline = deadline
        self._errors = metrics.redis_errors
        self._process_hit = metrics.index_lookups.labels("process", "hit")
        self._process_miss = metrics.index_lookups.labels("process", "miss")
        self._redis_hit = metrics.index_lookups.labels("redis", "hit")
        self._redis_miss = metrics.index_lookups.labels("redis", "unknown")

    async def resolve(
        self, keys: Collection[BeaconKey], lookups: int
    ) -> Mapping[BeaconKey, IndexedBeacon | None]:
        """Beacons for `keys`, None for unknown ones; without I/O if all are cached.

        Waits while Redis does not answer or the index is not built. `lookups` is the number of
        detections that need the keys, for the metric.
        """
        known = self.cache.known
        missing = [key for key in keys if key not in known]
        self._process_hit.inc(max(0, lookups - len(missing)))
        if not missing:
            return known
        self._process_miss.inc(len(missing))
        found = {key: known[key] for key in keys if key in known}
        async with self._loads.turn():
            found |= {key: known[key] for key in missing if key in known}
            loaded = await self._load_when_built([key for key in missing if key not in known])
        unknown = sum(beacon is None for beacon in loaded.values())
        self._redis_hit.inc(len(loaded) - unknown)
        self._redis_miss.inc(unknown)
        return found | loaded

    async def look_up(self, key: BeaconKey) -> IndexedBeacon | None:
        """One beacon as Redis has it now. Raises the errors of Redis instead of waiting.

        These are IndexNotBuiltError, RedisError, OSError and TimeoutError.
        """
        return (await self._load([key]))[key]

    async def _load_when_built(
        self, keys: list[BeaconKey]
    ) -> dict[BeaconKey, IndexedBeacon | None]:
        while keys:
            await self.built.wait()
            version = self.cache.version
            try:
                loaded = await retry(lambda: self._load(keys), self._errors, "reading the index")
            except IndexNotBuiltError:
                self.built.clear()
                continue
            self.cache.keep(loaded, version)
            return loaded
        return {}

    async def _load(self, keys: list[BeaconKey]) -> dict[BeaconKey, IndexedBeacon | None]:
        async with asyncio.timeout(self._deadline):
            values = await self._read([beacon_field(*key) for key in keys])
            entries = {
                key: decode_beacon(value)
                for key in keys
                if (value := values[beacon_field(*key)]) is not None
            }
            campaigns = await self._campaigns(entries.values())
            connectors = await self._connectors(entries.values(), campaigns)
        return {
            key: assemble(entries[key], campaigns, connectors) if key in entries else None
            for key in keys
        }

    async def _campaigns(self, entries: Iterable[BeaconEntry]) -> dict[int, CampaignSnapshot]:
        ids = {i for entry in entries for i in entry.campaigns}
        values = await self._read([campaign_field(i) for i in ids])
        campaigns = [decode_campaign(value) for value in values.values() if value is not None]
        return self.cache.reuse({campaign.id: campaign for campaign in campaigns})

    async def _connectors(
        self, entries: Iterable[BeaconEntry], campaigns: Mapping[int, CampaignSnapshot]
    ) -> dict[int, ConnectorEntry]:
        companies = {
            entry.beacon.venue.company_id
            for entry in entries
            if any(i in campaigns and campaigns[i].format == "connector" for i in entry.campaigns)
        }
        values = await self._read([connector_field(company) for company in companies])
        connectors = [decode_connector(value) for value in values.values() if value is not None]
        return {connector.company_id: connector for connector in connectors}

    async def _read(self, fields: list[str]) -> dict[str, bytes | None]:
        """Fields by name, in one round trip; each read includes its bucket's marker."""
        if not fields:
            return {}
        by_bucket: dict[int, list[str]] = {}
        for field in fields:
            by_bucket.setdefault(bucket(field), []).append(field)
        pipeline: Any = self._redis.pipeline(transaction=False)
        for number, names in by_bucket.items():
            pipeline.hmget(self._keys.bucket(number), [MARKER_FIELD, *names])
        values: dict[str, bytes | None] = {}
        for names, reply in zip(by_bucket.values(), await pipeline.execute(), strict=True):
            marker, *found = reply
            if marker is None:
                raise IndexNotBuiltError
            values.update(zip(names, found, strict=True))
        return values
