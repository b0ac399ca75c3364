"""The process's bounded cache of the index: places ready to decide, and data of companies."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import structlog

from catalog.index.entries import (
    ApplicationEntry,
    ConnectorEntry,
    PlaceEntry,
    SomePlace,
    tag_field,
)
from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey, TagKey
from engine.kafka.messages import (
    BeaconReference,
    CompanyReference,
    PlaceReference,
    VenueReference,
)
from rules.decision import Target
from rules.geofences import GeofenceGrid
from rules.model import BeaconSnapshot, CampaignSnapshot, CompanyRules, Place, TagSnapshot
from rules.schedule import schedule_of
from rules.visits import SILENCE, VisitKind, VisitPlace

log = structlog.get_logger(__name__)

_OF_A_CIRCLE = 640  # approximate bytes in a grid
_OF_A_TAG = 400  # approximate bytes of its key and its field
_OF_A_CAMPAIGN = 900  # approximate bytes of its object, schedule and share of the caches


class IndexedPlace:
    """A place ready to decide and to notify: compiled once, used for every detection.

    `connector` is the company's, if a campaign needs it. `campaign_ids` are those of all campaigns
    that are aimed at it, usable or not. `visited` are the place and its venue, if somebody needs
    visits there. `encoded_place` belongs to message.py, `plan` to grants.py.
    """

    __slots__ = (
        "campaign_ids",
        "campaigns",
        "company_reference",
        "connector",
        "encoded_place",
        "place",
        "plan",
        "reference",
        "target",
        "venue_reference",
        "visited",
    )

    def __init__(
        self,
        place: Place,
        campaigns: Iterable[CampaignSnapshot],
        connector: ConnectorEntry | None,
        campaign_ids: Iterable[int] = (),
        rules: CompanyRules | None = None,
    ) -> None:
        given, has_connector = tuple(campaigns), connector is not None
        self.place = place
        self.campaigns = given
        try:
            self.target = Target(place, given, has_connector, rules)
        except ValueError:
            self.campaigns = tuple(filter(_has_known_zone, given))
            self.target = Target(place, self.campaigns, has_connector, rules)
        venue = place.venue
        self.encoded_place: bytes | None = None
        self.plan: Any = None
        self.reference = _reference(place)
        self.venue_reference = VenueReference(venue.id, venue.name)
        self.company_reference = CompanyReference(venue.company_id)
        self.connector = connector
        self.visited = visited_at(place, self.campaigns, rules)
        self.campaign_ids = tuple({*campaign_ids, *(campaign.id for campaign in given)})

    def is_same(self, other: "IndexedPlace") -> bool:
        """Whether both were made from equal entries of the index."""
        return (
            self.place == other.place
            and self.campaigns == other.campaigns
            and self.connector == other.connector
            and self.target.rules == other.target.rules
            and self.campaign_ids == other.campaign_ids
        )


# What the index has of a place, or of a company by a field of the index: an application, its
# geofences or its rules. None if it has no such entry.
CacheEntry: TypeAlias = IndexedPlace | ApplicationEntry | GeofenceGrid | CompanyRules | None
CacheKey: TypeAlias = PlaceKey | str | None


def _reference(place: Place) -> BeaconReference | PlaceReference:
    if isinstance(place, BeaconSnapshot):
        return BeaconReference(place.id, place.name, place.uuid, place.major, place.minor)
    return PlaceReference(place.id, place.name)


def key_of(place: Place) -> PlaceKey:
    """The key that names a place."""
    if isinstance(place, BeaconSnapshot):
        return BeaconKey(place.uuid, place.major, place.minor)
    if isinstance(place, TagSnapshot):
        return TagKey(place.venue.company_id, place.kind, place.value)
    return GeofenceKey(place.id)


def visited_at(
    place: Place, campaigns: Iterable[CampaignSnapshot], rules: CompanyRules | None
) -> tuple[VisitPlace, ...]:
    """The place and its venue as visits see them; a tag is a place of its venue's visit alone."""
    venue = place.venue
    if rules is None or not (rules.tracks_visits and place.active and venue.active):
        return ()
    silence, key = venue.visit_silence or rules.visit_silence, (venue.id, *key_of(place))
    at_venue = VisitPlace(("venue", venue.id), key, silence or SILENCE["venue"])
    if isinstance(place, TagSnapshot):
        return (at_venue,)
    kind: VisitKind = "beacon" if isinstance(place, BeaconSnapshot) else "geofence"
    minutes = tuple(sorted({each.dwell_minutes or 0 for each in campaigns if each.on == "dwell"}))
    at_place = VisitPlace((kind, place.id), key, silence or SILENCE[kind], minutes)
    return (at_place, at_venue)


def assemble(
    entry: PlaceEntry[SomePlace],
    campaigns: Mapping[int, CampaignSnapshot],
    connectors: Mapping[int, ConnectorEntry],
    rules: Mapping[int, CompanyRules],
) -> IndexedPlace:
    """A place from its entry; connectors and rules are by company.

    A campaign that is missing in `campaigns` is left out.
    """
    company_id = entry.place.venue.company_id
    return IndexedPlace(
        entry.place,
        [campaigns[i] for i in entry.campaigns if i in campaigns],
        connectors.get(company_id),
        entry.campaigns,
        rules.get(company_id),
    )


class PlaceCache:
    """Places by key, and data of companies by field of the index; None for what is unknown there.

    The hot path reads `known` directly; only this class changes it. `version` counts the drops:
    data that was read from Redis while `version` changed may be stale, and is used once but not
    cached. `on_removal` is called with each key that leaves `known`, for whatever reason. The cache
    is bounded in entries and in bytes of campaigns' content and geofences; places share their
    campaigns.
    """

    def __init__(self, most_places: int, most_bytes: int = 128 * 1024 * 1024) -> None:
        self.known: dict[CacheKey, Any] = {}
        self.version = 0
        self.on_removal: Callable[[CacheKey], None] = _nobody
        self._most_places = most_places
        self._most_bytes = most_bytes
        self._bytes = 0
        self._campaigns: dict[int, CampaignSnapshot] = {}
        self._places_of: Counter[int] = Counter()  # cached places by the id() of their campaigns
        self._tags: dict[str, TagKey] = {}  # by field of the index, which has no values

    def reuse(self, campaigns: Mapping[int, CampaignSnapshot]) -> dict[int, CampaignSnapshot]:
        """The campaigns by id; a cached campaign replaces an equal one."""
        return {
            number: cached if (cached := self._campaigns.get(number)) == campaign else campaign
            for number, campaign in campaigns.items()
        }

    def keep(self, entries: Mapping[Any, CacheEntry], version: int) -> None:
        """Cache entries that were read since the cache had `version`."""
        if version != self.version:
            return
        for key, entry in entries.items():
            self._forget(key)
            self.known[key] = entry
            self._bytes += _size_of(key, entry)
            if isinstance(key, TagKey):
                self._tags[tag_field(*key)] = key
            if isinstance(entry, IndexedPlace):
                self._add(entry)
        if len(self.known) > self._most_places or self._bytes > self._most_bytes:
            self._make_room()

    def refresh(self, entries: Mapping[Any, CacheEntry], version: int) -> None:
        """Replace cached entries by those that were read again, where they differ."""
        self.keep({key: each for key, each in entries.items() if self._differs(key, each)}, version)

    def _differs(self, key: CacheKey, entry: CacheEntry) -> bool:
        if key not in self.known:
            return False  # it was dropped meanwhile
        cached = self.known[key]
        if isinstance(cached, IndexedPlace) and isinstance(entry, IndexedPlace):
            return not entry.is_same(cached)
        return cached is not entry

    def _make_room(self) -> None:
        """Drop a tenth: what is unknown first, so that made-up keys displace nothing, then any.

        Where devices detect their places in turn, the oldest place is the one that is needed next:
        if it were dropped, no detection would find its own.
        """
        most_places, most_bytes = self._most_places * 9 // 10, self._most_bytes * 9 // 10
        drawn = random.sample(list(self.known), len(self.known))
        for key in sorted(drawn, key=lambda each: self.known[each] is not None):
            if len(self.known) <= most_places and self._bytes <= most_bytes:
                return
            self._forget(key)

    def _add(self, place: IndexedPlace) -> None:
        for campaign in place.campaigns:
            self._campaigns[campaign.id] = campaign
            self._places_of[id(campaign)] += 1
            if self._places_of[id(campaign)] == 1:
                self._bytes += _size_of_campaign(campaign)

    def _forget(self, key: CacheKey) -> None:
        if key not in self.known:
            return
        self.on_removal(key)
        entry = self.known.pop(key)
        self._bytes -= _size_of(key, entry)
        if isinstance(key, TagKey):
            del self._tags[tag_field(*key)]
        for campaign in entry.campaigns if isinstance(entry, IndexedPlace) else ():
            self._places_of[id(campaign)] -= 1
            if not self._places_of[id(campaign)]:
                del self._places_of[id(campaign)]
                self._bytes -= _size_of_campaign(campaign)
                if self._campaigns.get(campaign.id) is campaign:
                    del self._campaigns[campaign.id]

    def drop(self, fields: Iterable[str]) -> None:
        """Drop what was made from these fields of the index."""
        self.version += 1
        changed = set(fields)
        keys: set[CacheKey] = changed.union(map(self._key_of, changed))
        campaigns = {_id_of(field) for field in changed if field.startswith("c:")}
        companies = {_id_of(field) for field in changed if field.startswith(("k:", "r:"))}
        if campaigns or companies:
            keys.update(
                key
                for key, place in self.known.items()
                if isinstance(place, IndexedPlace)
                and (
                    not campaigns.isdisjoint(place.campaign_ids)
                    or place.company_reference.id in companies
                )
            )
        for key in keys:
            self._forget(key)

    def _key_of(self, field: str) -> PlaceKey | None:
        """The key of a place by its field of the index."""
        kind, *parts = field.split(":")
        if kind == "b":
            return BeaconKey(parts[0], int(parts[1]), int(parts[2]))
        return GeofenceKey(int(parts[0])) if kind == "g" else self._tags.get(field)

    def drop_all(self) -> None:
        """Drop everything."""
        self.version += 1
        for key in self.known:
            self.on_removal(key)
        self.known.clear()
        self._tags.clear()
        self._campaigns.clear()
        self._places_of.clear()
        self._bytes = 0


def _nobody(_: CacheKey) -> None:
    """Nobody wants to know of removals."""


def _size_of(key: CacheKey, entry: CacheEntry) -> int:
    """About how many bytes a tag has, whose value may be long, and the tag unknown; or a grid."""
    if isinstance(key, TagKey):
        return _OF_A_TAG + len(key.value)
    return _OF_A_CIRCLE * len(entry.circles) if isinstance(entry, GeofenceGrid) else 0


def _size_of_campaign(campaign: CampaignSnapshot) -> int:
    texts = (campaign.content, campaign.title, campaign.push, campaign.name)
    return _OF_A_CAMPAIGN + sum(len(text) for text in texts if text is not None)


def _id_of(field: str) -> int:
    """The id in the field of a campaign, or of a company's connector or rules."""
    return int(field.partition(":")[2])


def _has_known_zone(campaign: CampaignSnapshot) -> bool:
    """Whether the campaign's time zone is known.

    A zone that this machine's tz database lacks silences its campaign and does not stop the
    process.
    """
    try:
        schedule_of(campaign)
    except ValueError as error:
        log.exception("campaign left out", campaign=campaign.id, error=str(error))
        return False
    return True
