"""The session in which the catalog is written. Modules listen to it, so that no writer forgets:

catalog.outbox enqueues changes for the index, catalog.access ends sessions, catalog.soft_deletion
hides deleted records, catalog.audit records who changed what. catalog.database imports them all.
"""

from typing import Any

from sqlalchemy import inspect
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import History


class CatalogSession(Session):
    """The class of every session of `catalog.database.Database`."""


def id_of(record: Any) -> int:
    """The id of a stored record, without SQL, even if its attributes are expired."""
    return int(inspect(record).identity[0])


def history_of(record: object, name: str) -> History:
    """The change of an attribute that a flush would write."""
    return inspect(record).attrs[name].history  # type: ignore[no-any-return]  # inspect is untyped


def has_changed(record: object, *names: str) -> bool:
    """Whether a flush would change one of the attributes."""
    return any(history_of(record, name).has_changes() for name in names)
