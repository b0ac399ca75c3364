"""Writes and counts records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import inspect
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.models import Base, Beacon, Campaign, Geofence, Tag, Venue
from catalog.secrets import Cipher


@dataclass
class RecordCount:
    """How many records of one kind were created, updated or left unchanged."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0


@dataclass
class LoadSummary:
    """Counts by kind: companies, accounts, applications, connectors, devices, venues, tags,
    beacons, geofences, campaigns.
    """

    counts: dict[str, RecordCount] = field(default_factory=dict)

    def of(self, kind: str) -> RecordCount:
        """The count of a kind, to read or to increase."""
        return self.counts.setdefault(kind, RecordCount())

    @property
    def changed(self) -> bool:
        """Whether anything was created or updated."""
        return any(count.created or count.updated for count in self.counts.values())

    def lines(self) -> list[str]:
        """A line per kind, for people."""
        return [
            f"{kind}: {count.created} created, {count.updated} updated, {count.unchanged} unchanged"
            for kind, count in self.counts.items()
        ]


M = TypeVar("M", bound=Base)
T = TypeVar("T", Beacon, Geofence, Tag)


@dataclass(frozen=True, kw_only=True)
class RecordWriter:
    """Writes the records of a checked document. `now` is the instant of the load.

    `grown` has the beacons and campaigns that may exceed a limit now, with their places, and
    `added` the venues to which records were added, with the places of the lists: see
    catalog.load.checks.
    """

    session: AsyncSession
    summary: LoadSummary
    cipher: Cipher | None
    now: datetime
    grown: list[tuple[str, Beacon | Campaign]] = field(default_factory=list)
    added: dict[str, tuple[type[Beacon | Campaign], Venue]] = field(default_factory=dict)

    def save(
        self,
        kind: str,
        stored: M | None,
        model: type[M],
        values: Mapping[str, Any],
        *,
        on_create: Mapping[str, Any] | None = None,
        on_change: Mapping[str, Any] | None = None,
    ) -> M:
        """Set the attributes that differ from the stored record, or add a new record.

        A new record gets `on_create` as well, and a stored one that differs gets `on_change`.
        """
        count = self.summary.of(kind)
        if stored is None:
            created = model(**values, **(on_create or {}))
            self.session.add(created)
            count.created += 1
            return created
        different = {k: v for k, v in values.items() if getattr(stored, k) != v}
        if different:
            different |= on_change or {}
            count.updated += 1
        else:
            count.unchanged += 1
        for key, value in different.items():
            setattr(stored, key, value)
        return stored


def in_order(records: Iterable[T]) -> list[T]:
    """Records in the order of a relationship: stored ones by id, then new ones as they come."""
    new: list[T] = []
    known: list[T] = []
    for record in dict.fromkeys(records):
        (known if inspect(record).persistent else new).append(record)
    return sorted(known, key=lambda record: record.id) + new
