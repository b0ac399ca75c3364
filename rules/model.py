"""The records that a decision reads: small, frozen copies of the catalog's records.

The index in Redis holds these same types as JSON, so the catalog, the index and the rules share
them. Instants are aware datetimes in the offset in which they were written; delays are whole
seconds; minutes count from local midnight.
"""

from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Literal

import msgspec

ContentFormat = Literal["template", "url", "html", "connector"]


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
    INACTIVE_VENUE = "inactive_venue"
    INACTIVE_BEACON = "inactive_beacon"
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
    THROTTLED = "throttled"
    GRANTED = "granted"
    __hash__ = str.__hash__  # that of Enum is written in Python


class VenueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A place of one company. `time_zone` is an IANA name, or None when the venue has none."""

    id: int
    name: str
    company_id: int
    active: bool
    time_zone: str | None = None


class CampaignSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign with all fields that decide whether it fires and all fields that are sent.

    `content` is the field that `format` names (None for connector). `delay` is the frequency
    cap in seconds, 0 for none. `weekdays` is a bit mask, bit 0 Monday to bit 6 Sunday.
    `start_minute` is 0..1439 and `end_minute` 0..1440, in local time: that of `time_zone`
    (the venue's), else the numeric offset that `start` carries.

    `asleep` says that the fields that are sent are left out, because the campaign cannot fire now:
    it or its venue is inactive, or its dates are far away. The rules never grant such a campaign.
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
    asleep: bool = False

    def without_content(self) -> "CampaignSnapshot":
        """The campaign without the fields that are sent, asleep."""
        return msgspec.structs.replace(
            self, title="", push="", content=None, background=None, color=None, asleep=True
        )


class BeaconSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A beacon at its venue. `reach` is the farthest zone that triggers.

    `uuid` is in canonical form: lower case, with dashes.
    """

    id: int
    name: str
    uuid: str
    major: int
    minor: int
    active: bool
    reach: Zone
    venue: VenueSnapshot
