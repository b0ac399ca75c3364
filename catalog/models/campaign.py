"""Campaigns: their content, schedule and cap, and the beacons, geofences and tags they target."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, ForeignKey, String, Table, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from catalog.models.base import (
    Base,
    HasId,
    Id,
    Instant,
    SoftDeletable,
    at_offset,
    belongs_to,
    offset_minutes,
)
from catalog.models.venue import Beacon, Geofence, Tag, Venue

EVERY_DAY = 0b1111111
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _link_table(table: str) -> Table:
    return Table(
        f"campaign_{table}",
        Base.metadata,
        Column("campaign_id", Id, ForeignKey("campaign.id", ondelete="CASCADE"), primary_key=True),
        Column(
            f"{table}_id",
            Id,
            ForeignKey(f"{table}.id", ondelete="CASCADE"),
            primary_key=True,
            index=True,
        ),
    )


campaign_beacon = _link_table("beacon")
campaign_geofence = _link_table("geofence")
campaign_tag = _link_table("tag")


class Campaign(HasId, SoftDeletable, Base):
    """A campaign of a venue.

    `cache` is the cap as written and `delay` the cap in seconds; minutes count from local midnight
    (`end_minute` up to 1440); `weekdays` is a mask, bit 0 Monday. `start` and `end` are instants
    together with the offset (minutes east) in which they were written.
    """

    __tablename__ = "campaign"
    __table_args__ = (
        CheckConstraint("format IN ('template', 'url', 'html', 'connector')", name="format"),
        CheckConstraint("weekdays BETWEEN 0 AND 127", name="weekdays"),
        CheckConstraint("start_minute BETWEEN 0 AND 1439", name="start_minute"),
        CheckConstraint("end_minute BETWEEN 0 AND 1440", name="end_minute"),
    )

    venue_id: Mapped[int] = belongs_to("venue", index=True)
    venue: Mapped[Venue] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))
    hash: Mapped[str | None] = mapped_column(String(255))
    push: Mapped[str] = mapped_column(Text)
    title: Mapped[str] = mapped_column(Text)
    format: Mapped[str] = mapped_column(String(16))
    template: Mapped[str | None] = mapped_column(Text)
    url: Mapped[str | None] = mapped_column(Text)
    html: Mapped[str | None] = mapped_column(Text)
    background: Mapped[str | None] = mapped_column(String(64))
    color: Mapped[str | None] = mapped_column(String(64))
    cache: Mapped[str] = mapped_column(String(64))
    delay: Mapped[int] = mapped_column(Id)
    start_at: Mapped[datetime] = mapped_column(Instant)
    start_offset: Mapped[int]
    end_at: Mapped[datetime] = mapped_column(Instant)
    end_offset: Mapped[int]
    start_minute: Mapped[int]
    end_minute: Mapped[int]
    active: Mapped[bool]
    weekdays: Mapped[int] = mapped_column(default=EVERY_DAY)
    nfcs: Mapped[list[Any]] = mapped_column(JSON, default=list)
    qrcodes: Mapped[list[Any]] = mapped_column(JSON, default=list)
    beacons: Mapped[list[Beacon]] = relationship(
        secondary=campaign_beacon, lazy="raise", order_by=Beacon.id, passive_deletes=True
    )
    geofencings: Mapped[list[Geofence]] = relationship(
        secondary=campaign_geofence, lazy="raise", order_by=Geofence.id, passive_deletes=True
    )
    tags: Mapped[list[Tag]] = relationship(
        secondary=campaign_tag, lazy="raise", order_by=Tag.id, passive_deletes=True
    )

    @property
    def start(self) -> datetime:
        """The first instant, in the offset in which it was written."""
        return at_offset(self.start_at, self.start_offset)

    @start.setter
    def start(self, written: datetime) -> None:
        self.start_at, self.start_offset = written, offset_minutes(written)

    @property
    def end(self) -> datetime:
        """The last instant, or the last whole day when it is at 00:00:00, as written."""
        return at_offset(self.end_at, self.end_offset)

    @end.setter
    def end(self, written: datetime) -> None:
        self.end_at, self.end_offset = written, offset_minutes(written)
