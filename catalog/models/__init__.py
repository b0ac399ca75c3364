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
from catalog.models.company import Account, Application, Company
from catalog.models.connector import Connector
from catalog.models.device import Device
from catalog.models.index import IndexState, Outbox
from catalog.models.session import Session
from catalog.models.venue import Beacon, Geofence, Tag, Venue, beacon_tag

__all__ = [
    "EVERY_DAY",
    "WEEKDAYS",
    "Account",
    "Application",
    "Base",
    "Beacon",
    "Campaign",
    "Company",
    "Connector",
    "Device",
    "Geofence",
    "IndexState",
    "Outbox",
    "Session",
    "Tag",
    "Venue",
    "beacon_tag",
    "campaign_beacon",
    "campaign_geofence",
    "campaign_tag",
]
