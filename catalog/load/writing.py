"""How a record is written, and counted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import inspect
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.models import Base, Beacon, Campaign, Geofence, Tag, Venue
from catalog.secrets import Cipher


@dataclass
class Count:
    """Records of one kind."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0


@dataclass
class LoadSummary:
    """Counts by kind: companies, accounts, applications, connectors, devices, venues, tags,
    beacons, geofences, campaigns."""

    counts: dict[str, Count] = field(default_factory=dict)

    def of(self, kind: str) -> Count:
        """The count of a kind, to read or to add to."""
        return self.counts.setdefault(kind, Count())

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
class Writer:
    """Writes records of a checked document. `now` is the load's instant.

    `grown` are the beacons and campaigns that may pass a limit now, with their places, and `added`
    the venues into which records came, with the places of the lists: see catalog.load.check.
    """

    session: AsyncSession
    summary: LoadSummary
    cipher: Cipher | None
    now: datetime
    grown: list[tuple[str, Beacon | Campaign]] = field(default_factory=list)
    added: dict[str, tuple[type[Beacon | Campaign], Venue]] = field(default_factory=dict)

    def create(self, kind: str, record: M) -> M:
        """Add a new record."""
        self.session.add(record)
        self.summary.of(kind).created += 1
        return record

    def update(self, kind: str, record: M, values: Mapping[str, Any], **on_change: Any) -> M:
        """Set what differs; `on_change` too, if anything does."""
        different = {k: v for k, v in values.items() if getattr(record, k) != v}
        if not different:
            self.summary.of(kind).unchanged += 1
            return record
        for key, value in (different | on_change).items():
            setattr(record, key, value)
        self.summary.of(kind).updated += 1
        return record


def in_order(records: Iterable[T]) -> list[T]:
    """As a relationship loads them: stored ones by id, then new ones as they come."""
    new: list[T] = []
    known: list[T] = []
    for record in dict.fromkeys(records):
        (known if inspect(record).persistent else new).append(record)
    return sorted(known, key=lambda record: record.id) + new
