"""Determines which campaigns target a beacon: by its id, or by one of its tags at its venue."""

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Select, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.chunks import chunked
from catalog.models import Campaign, beacon_tag, campaign_beacon, campaign_tag

_CHUNK = 1000
_ALL = true()


class CampaignTargets:
    """Finds the campaigns of beacons, and caches the campaigns of tags.

    `condition` restricts the campaigns. Tags are joined here and not in SQL: if many beacons and
    many campaigns share a tag, SQL would return each campaign once for every beacon. Beacons of a
    venue that carry the same tags share one set.
    """

    def __init__(self, session: AsyncSession, condition: ColumnElement[bool] = _ALL) -> None:
        self._session = session
        self._condition = condition
        self._by_tag: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self._by_tags: dict[tuple[int, frozenset[int]], frozenset[int]] = {}

    async def of(self, venues: Mapping[int, int]) -> dict[int, frozenset[int]]:
        """The ids of the campaigns of up to 1000 beacons; `venues` has the venue of each."""
        by_id = select(campaign_beacon.c.beacon_id, Campaign.id).join(
            Campaign, Campaign.id == campaign_beacon.c.campaign_id
        )
        by_id = by_id.where(campaign_beacon.c.beacon_id.in_(venues), self._condition)
        carried = select(beacon_tag.c.beacon_id, beacon_tag.c.tag_id)
        campaigns = await self._grouped(by_id)
        tags = await self._grouped(carried.where(beacon_tag.c.beacon_id.in_(venues)))
        await self._read_tags({(venues[beacon], tag) for beacon in tags for tag in tags[beacon]})
        found = {}
        for beacon_id, venue_id in venues.items():
            by_tags = self._carrying(venue_id, frozenset(tags[beacon_id]))
            listed = campaigns.get(beacon_id)
            found[beacon_id] = by_tags | listed if listed else by_tags
        return found

    async def _read_tags(self, wanted: set[tuple[int, int]]) -> None:
        """Cache the campaigns of (venue id, tag id) pairs."""
        unknown = sorted(wanted - self._by_tag.keys())
        query = select(Campaign.venue_id, campaign_tag.c.tag_id, Campaign.id)
        query = query.join(campaign_tag, campaign_tag.c.campaign_id == Campaign.id)
        query = query.where(Campaign.venue_id.in_({venue for venue, _ in unknown}))
        for tags in chunked(sorted({tag for _, tag in unknown}), _CHUNK):
            rows = query.where(campaign_tag.c.tag_id.in_(tags), self._condition)
            for venue_id, tag_id, campaign_id in await self._session.execute(rows):
                self._by_tag[venue_id, tag_id].add(campaign_id)
        for pair in unknown:
            self._by_tag.setdefault(pair, set())  # no campaign of the venue targets this tag

    def _carrying(self, venue_id: int, tags: frozenset[int]) -> frozenset[int]:
        key = (venue_id, tags)
        if key not in self._by_tags:
            sets = (self._by_tag[venue_id, tag] for tag in tags)
            self._by_tags[key] = frozenset().union(*sets)
        return self._by_tags[key]

    async def _grouped(self, pairs: Select[int, int]) -> defaultdict[int, set[int]]:
        found: defaultdict[int, set[int]] = defaultdict(set)
        for key, value in await self._session.execute(pairs):
            found[key].add(value)
        return found
