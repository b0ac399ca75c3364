"""What the process remembers of the index: beacons ready to decide, bounded, dropped when told."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import structlog

from catalog.index.entries import BeaconEntry, ConnectorEntry, campaign_field, connector_field
from engine.messages import BeaconReference, CompanyReference, VenueReference
from rules.decision import Target
from rules.model import Beacon, Campaign

log = structlog.get_logger(__name__)


class BeaconKey(NamedTuple):
    """The triple that names one beacon; `uuid` in lower case with dashes."""

    uuid: str
    major: int
    minor: int


class IndexedBeacon:
    """A beacon ready to decide and to notify: compiled once, used for every detection.

    `connector` is its company's, where a campaign wants it. `depends_on` names the fields of the
    index that it was made from, besides its own.
    """

    __slots__ = (
        "company_reference",
        "connector",
        "depends_on",
        "reference",
        "target",
        "venue_reference",
    )

    def __init__(
        self, beacon: Beacon, campaigns: Iterable[Campaign], connector: ConnectorEntry | None
    ) -> None:
        usable = [campaign for campaign in campaigns if _has_known_zone(beacon, campaign)]
        venue = beacon.venue
        self.reference = BeaconReference(
            beacon.id, beacon.name, beacon.uuid, beacon.major, beacon.minor
        )
        self.venue_reference = VenueReference(venue.id, venue.name)
        self.company_reference = CompanyReference(venue.company_id)
        self.connector = connector
        self.target = Target.of_beacon(beacon, usable, connector is not None)
        self.depends_on = frozenset(
            [connector_field(venue.company_id), *(campaign_field(c.id) for c in usable)]
        )


def assemble(
    entry: BeaconEntry,
    campaigns: Mapping[int, Campaign],
    connectors: Mapping[int, ConnectorEntry],
) -> IndexedBeacon:
    """A beacon from its entry. A campaign that is not there (any more) is left out."""
    made = IndexedBeacon(
        entry.beacon,
        [campaigns[i] for i in entry.campaigns if i in campaigns],
        connectors.get(entry.beacon.venue.company_id),
    )
    made.depends_on |= {campaign_field(i) for i in entry.campaigns}
    return made


class BeaconCache:
    """Beacons by key; None for a triple that is known to be unknown.

    `known` is read directly in the hot path. `version` counts the drops: what was read from
    Redis while it moved may be old, and is used once but not kept.
    """

    def __init__(self, most_beacons: int) -> None:
        self.known: dict[BeaconKey, IndexedBeacon | None] = {}
        self.version = 0
        self._most_beacons = most_beacons

    def keep(self, beacons: Mapping[BeaconKey, IndexedBeacon | None], version: int) -> None:
        """Remember what was read since the cache had `version`."""
        if version != self.version:
            return
        self.known.update(beacons)
        excess = len(self.known) - self._most_beacons
        if excess > 0:  # the oldest go, with a tenth to spare so that it is not done every time
            for key in list(self.known)[: excess + self._most_beacons // 10]:
                del self.known[key]

    def drop(self, fields: Iterable[str]) -> None:
        """Forget what was made from these fields of the index."""
        self.version += 1
        changed = set(fields)
        keys = {_key_of(field) for field in changed if field.startswith("b:")}
        dependent = {field for field in changed if not field.startswith("b:")}
        if dependent:
            keys.update(
                key
                for key, beacon in self.known.items()
                if beacon is not None and not dependent.isdisjoint(beacon.depends_on)
            )
        for key in keys:
            self.known.pop(key, None)

    def drop_all(self) -> None:
        """Forget everything."""
        self.version += 1
        self.known.clear()


def _key_of(field: str) -> BeaconKey:
    _, uuid, major, minor = field.split(":")
    return BeaconKey(uuid, int(major), int(minor))


def _has_known_zone(beacon: Beacon, campaign: Campaign) -> bool:
    """A zone that this machine's tz database lacks silences its campaign, not the process."""
    try:
        Target.of_beacon(beacon, [campaign])
    except ValueError as error:
        log.exception("campaign left out", campaign=campaign.id, error=str(error))
        return False
    return True
