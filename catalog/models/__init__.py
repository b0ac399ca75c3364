"""The tables, as SQLAlchemy models."""

from catalog.models.audit import AuditEntry
from catalog.models.base import Base
from catalog.models.campaign import (
    EVERY_DAY,
    WEEKDAYS,
    Campaign,
    campaign_beacon,
    campaign_geofence,
    campaign_tag,
)
from catalog.models.company import Account, Application, Company
from catalog.models.connector import Connector
from catalog.models.device import Device
from catalog.models.index import IndexState, Outbox
from catalog.models.recording import (
    Presence,
    Reception,
    RecorderOffset,
    RecorderPast,
    Statistic,
    StatisticDevice,
)
from catalog.models.session import AccessState, Session
from catalog.models.traces import AuthenticationTrace, DetectionTrace
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
    "RecorderPast",
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
