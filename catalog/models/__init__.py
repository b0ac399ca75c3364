"""The tables, as SQLAlchemy models."""

from catalog.models.base import Base
from catalog.models.campaign import (
    EVERY_DAY,
    WEEKDAYS,
    Campaign,
    campaign_beacon,
    campaign_geofence,
    campaign_tag,
)
from catalog.models.company import (
    Account,
    Application,
    AuditEntry,
    Company,
    Connector,
    Device,
    Session,
)
from catalog.models.recording import (
    AuthenticationTrace,
    DetectionTrace,
    Presence,
    Reception,
    Statistic,
    StatisticDevice,
)
from catalog.models.state import AccessState, IndexState, Outbox, RecorderOffset, ReplacedTopic
from catalog.models.venue import Beacon, Geofence, Tag, Venue, beacon_tag

__all__ = [
    "EVERY_DAY",
    "WEEKDAYS",
    "AccessState",
    "Account",
    "Application",
    "AuditEntry",
    "AuthenticationTrace",
    "Base",
    "Beacon",
    "Campaign",
    "Company",
    "Connector",
    "DetectionTrace",
    "Device",
    "Geofence",
    "IndexState",
    "Outbox",
    "Presence",
    "Reception",
    "RecorderOffset",
    "ReplacedTopic",
    "Session",
    "Statistic",
    "StatisticDevice",
    "Tag",
    "Venue",
    "beacon_tag",
    "campaign_beacon",
    "campaign_geofence",
    "campaign_tag",
]
