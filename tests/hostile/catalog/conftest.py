"""A migrated catalog on each database, and the interface on it."""

from tests.integration.api.conftest import api, bodies, passwords, settings
from tests.integration.catalog.conftest import database, records, redis, store

__all__ = ["api", "bodies", "database", "passwords", "records", "redis", "settings", "store"]
