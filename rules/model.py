"""The records that a decision reads, and its results.

The index in Redis holds the same types as JSON, so the catalog, the index and the rules share them.
Instants are aware datetimes in the offset in which they were written; delays are whole seconds;
minutes count from local midnight.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import ClassVar, Literal

import msgspec

PlaceKind = Literal["beacon", "geofence", "nfc", "qrcode"]
ContentFormat = Literal["template", "url", "html", "connector"]
FiresOn = Literal["detection", "enter", "dwell", "exit"]


class Zone(IntEnum):
    """How near a device is to a beacon. The numbers are CoreLocation's; UNKNOWN never triggers."""

    UNKNOWN = 0
    IMMEDIATE = 1
    NEAR = 2
    FAR = 3
    __hash__ = int.__hash__  # that of Enum is written in Python


class Reason(StrEnum):
    """Why a detection did or did not lead to a notification, in the order of the checks.

    The first check that fails names the decision. A closed list: it is also the label set of
    the metrics and the vocabulary of the logs.
    """

    UNKNOWN_BEACON = "unknown_beacon"
    UNKNOWN_GEOFENCE = "unknown_geofence"
    UNKNOWN_TAG = "unknown_tag"
    UNKNOWN_APPLICATION = "unknown_application"
    OUTSIDE = "outside"
    INACCURATE = "inaccurate"
    INACTIVE_VENUE = "inactive_venue"
    INACTIVE_BEACON = "inactive_beacon"
    INACTIVE_GEOFENCE = "inactive_geofence"
    INACTIVE_TAG = "inactive_tag"
    NO_CAMPAIGN = "no_campaign"
    UNKNOWN_PROXIMITY = "unknown_proximity"
    TOO_FAR = "too_far"
    STALE = "stale"
    FUTURE = "future"
    INACTIVE = "inactive"
    NOT_STARTED = "not_started"
    ENDED = "ended"
    WRONG_WEEKDAY = "wrong_weekday"
    OUTSIDE_HOURS = "outside_hours"
    NO_CONNECTOR = "no_connector"
    NOT_ENTERED = "not_entered"
    QUIET_HOURS = "quiet_hours"
    THROTTLED = "throttled"
    CAPPED = "capped"
    GRANTED = "granted"
    __hash__ = str.__hash__  # that of Enum is written in Python


class VenueSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place of one company. `time_zone` is an IANA name, or None when the venue has none.

    `visit_silence` is the seconds without detections that end a visit, None for the company's.
    """

    id: int
    name: str
    company_id: int
    active: bool
    time_zone: str | None = None
    visit_silence: int | None = None


class Cap(msgspec.Struct, frozen=True, array_like=True):
    """At most `most` notifications to a device within any `seconds`."""

    most: int
    seconds: int


class QuietHours(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hours without notifications, in minutes and weekdays as those of a campaign."""

    start_minute: int
    end_minute: int
    weekdays: int = 0b1111111


class CompanyRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a company sets for all of its campaigns.

    `time_zone` is for the quiet hours, where neither the device's nor the venue's is known.
    `tracks_visits` says that somebody needs visits: the company, or a campaign that does not fire
    on every detection. `visit_silence` is in seconds, None for the setting.
    """

    company_id: int
    caps: tuple[Cap, ...] = ()
    quiet_hours: QuietHours | None = None
    time_zone: str | None = None
    visit_silence: int | None = None
    tracks_visits: bool = False


class CampaignSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A campaign with all fields that decide whether it fires and all fields that are sent.

    `content` is the field that `format` names (None for connector). `delay` is the frequency
    cap in seconds, 0 for none. `weekdays` is a bit mask, bit 0 Monday to bit 6 Sunday.
    `start_minute` is 0..1439 and `end_minute` 0..1440, in local time: that of `time_zone`
    (the venue's), else the numeric offset that `start` carries.

    `on` is what it fires on: each detection, or a moment of a visit; `dwell_minutes` is set for
    dwell alone. `priority` is 0..9, the highest first. `ignores_caps`: the company's caps neither
    hold it back nor count it.
    """

    id: int
    name: str
    hash: str | None = None
    active: bool
    title: str
    push: str
    format: ContentFormat
    content: str | None = None
    background: str | None = None
    color: str | None = None
    delay: int
    start: datetime
    end: datetime
    start_minute: int
    end_minute: int
    weekdays: int
    time_zone: str | None = None
    on: FiresOn = "detection"
    dwell_minutes: int | None = None
    priority: int = 5
    ignores_caps: bool = False
    ignores_quiet_hours: bool = False

    @property
    def precedence(self) -> tuple[int, int]:
        """Sorts campaigns that fire together: the highest priority, then the lowest id."""
        return -self.priority, self.id


Campaigns = tuple[CampaignSnapshot, ...]


class BeaconSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="beacon"):
    """A beacon at its venue. `reach` is the farthest zone that triggers.

    `uuid` is in canonical form: lower case, with dashes.
    """

    kind: ClassVar[PlaceKind] = "beacon"
    id: int
    name: str
    uuid: str
    major: int
    minor: int
    active: bool
    reach: Zone
    venue: VenueSnapshot


class GeofenceSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="geofence"):
    """A circle on the map, of a venue: degrees, and a radius in metres."""

    kind: ClassVar[PlaceKind] = "geofence"
    id: int
    name: str
    active: bool
    latitude: float
    longitude: float
    radius: float
    venue: VenueSnapshot


class TagSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tag"):
    """An NFC tag or QR code of a venue; a scan of exactly `value` is a detection of it."""

    id: int
    name: str
    active: bool
    kind: Literal["nfc", "qrcode"]
    value: str
    venue: VenueSnapshot


Place = BeaconSnapshot | GeofenceSnapshot | TagSnapshot


Counts = tuple[tuple[Reason, int], ...]


class DecisionTally(msgspec.Struct, frozen=True, eq=False):
    """The numbers that a decision adds to the metrics: campaigns by reason.

    `granted`, `throttled` and `capped` are apart from the closed ones. Decisions of a company with
    equal numbers share one tally, so that a batch has few. `company_id` is 0 where the place is
    unknown.
    """

    reason: Reason
    closed: Counts
    throttled: int
    granted: int
    company_id: int
    capped: int = 0

    @property
    def outcomes(self) -> Counts:
        """The refused campaigns by reason, those that were open included."""
        refused = (Reason.THROTTLED, self.throttled), (Reason.CAPPED, self.capped)
        return self.closed + tuple(each for each in refused if each[1])


_shared_tally = lru_cache(maxsize=16_384)(DecisionTally)
_NO_TALLY = DecisionTally(Reason.NO_CAMPAIGN, (), 0, 0, 0)


class Decision(msgspec.Struct, frozen=True, eq=False):
    """The outcome of one detection. Detections share decisions: compared and hashed by identity.

    `reason` is the check that refused the detection, or else the furthest check that any
    campaign reached. `closed` counts the refused campaigns by reason (a refused detection
    counts once), `throttled` those refused by their cache delay; `capped` are those refused by the
    company's caps. `granted` passed every check and are sent if the caller's claim succeeds.
    `open` has the campaigns that are open by their schedule, granted or one of the last two;
    `closed_campaigns` has the ids of the others by reason.
    `company_id` is the company of the place, 0 where the place is unknown.
    """

    reason: Reason
    closed: Counts = ()
    throttled: int = 0
    granted: Campaigns = ()
    open: Campaigns = ()
    closed_campaigns: Mapping[Reason, Sequence[int]] = {}
    company_id: int = 0
    capped: Campaigns = ()
    tally: DecisionTally = _NO_TALLY

    def __post_init__(self) -> None:
        counts = self.throttled, len(self.granted), self.company_id, len(self.capped)
        tally = _shared_tally(self.reason, self.closed, *counts)
        msgspec.structs.force_setattr(self, "tally", tally)

    @property
    def by_campaign(self) -> Iterator[tuple[int, Reason]]:
        """The id of each checked campaign, with the reason of its refusal, or GRANTED.

        Empty if the detection was refused before its campaigns were checked.
        """
        for reason, closed in self.closed_campaigns.items():
            for campaign_id in closed:
                yield campaign_id, reason
        named = {campaign.id: Reason.GRANTED for campaign in self.granted}
        named |= {campaign.id: Reason.CAPPED for campaign in self.capped}
        for campaign in self.open:
            yield campaign.id, named.get(campaign.id, Reason.THROTTLED)


class StoredDecision(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of a detection at `detected_at`, decided at `decided_at` (epoch seconds).

    `reason` is the value of a Reason. `campaigns` has the ids of campaigns by their reason. It is
    empty if the detection was refused before any campaign was checked. `beacon` is the id of the
    place, `kind` what it is.
    """

    detected_at: float
    decided_at: float
    beacon: int
    zone: Zone
    reason: str
    campaigns: dict[str, list[int]]
    kind: PlaceKind = "beacon"


class DayFigures(msgspec.Struct, eq=True):
    """Sums of a day, in UTC. Decisions are counted, so a detection decided twice counts twice.

    `reasons` counts each checked campaign, and each detection that was refused before its campaigns
    were checked; `campaigns` counts by id and reason.
    """

    reasons: Counter[Reason] = msgspec.field(default_factory=Counter)
    campaigns: Counter[tuple[int, Reason]] = msgspec.field(default_factory=Counter)
