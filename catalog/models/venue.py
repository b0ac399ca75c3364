"""Venues, the beacons and geofences in them, and the tags of beacons."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from catalog.models.base import Base, HasId, Id, SoftDeletable, belongs_to
from catalog.models.company import Company

beacon_tag = Table(
    "beacon_tag",
    Base.metadata,
    Column("beacon_id", Id, ForeignKey("beacon.id", ondelete="CASCADE"), primary_key=True),
    Column("tag_id", Id, ForeignKey("tag.id", ondelete="CASCADE"), primary_key=True, index=True),
)

_LIVING = text("deleted_at IS NULL")


class Venue(HasId, SoftDeletable, Base):
    """A place that a company runs. Sizes are metres; `time_zone` is an IANA name."""

    __tablename__ = "venue"
    __table_args__ = (Index(None, "company_id", "name"),)

    company_id: Mapped[int] = belongs_to("company")
    company: Mapped[Company] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))
    address: Mapped[str] = mapped_column(Text)
    active: Mapped[bool]
    width: Mapped[int | None]
    height: Mapped[int | None]
    image: Mapped[str | None] = mapped_column(Text)
    time_zone: Mapped[str | None] = mapped_column(String(64))


class Tag(HasId, Base):
    """A word that links campaigns to beacons. Names are unique within a company."""

    __tablename__ = "tag"
    __table_args__ = (UniqueConstraint("company_id", "name"),)

    company_id: Mapped[int] = belongs_to("company")
    company: Mapped[Company] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))


class Beacon(HasId, SoftDeletable, Base):
    """A beacon at a venue. No two beacons have the same triple, unless one is deleted.

    `uuid` is in canonical form (lower case, dashes); `proximity` is the farthest zone that
    triggers: immediate, near or far; `x` and `y` are positions on the venue's map.
    """

    __tablename__ = "beacon"
    __table_args__ = (
        Index(
            "uq_beacon_uuid_major_minor",
            "uuid",
            "major",
            "minor",
            unique=True,
            postgresql_where=_LIVING,
            sqlite_where=_LIVING,
        ),
        CheckConstraint("major BETWEEN 0 AND 65535", name="major"),
        CheckConstraint("minor BETWEEN 0 AND 65535", name="minor"),
        CheckConstraint("proximity IN ('immediate', 'near', 'far')", name="proximity"),
    )

    venue_id: Mapped[int] = belongs_to("venue", index=True)
    venue: Mapped[Venue] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))
    uuid: Mapped[str] = mapped_column(String(36))
    major: Mapped[int]
    minor: Mapped[int]
    active: Mapped[bool]
    proximity: Mapped[str] = mapped_column(String(16))
    x: Mapped[int | None]
    y: Mapped[int | None]
    color: Mapped[str | None] = mapped_column(String(64))
    tags: Mapped[list[Tag]] = relationship(
        secondary=beacon_tag, lazy="raise", order_by=Tag.id, passive_deletes=True
    )


class Geofence(HasId, SoftDeletable, Base):
    """A circle on the map: degrees, and a radius in metres."""

    __tablename__ = "geofence"

    venue_id: Mapped[int] = belongs_to("venue", index=True)
    venue: Mapped[Venue] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))
    longitude: Mapped[float]
    latitude: Mapped[float]
    radius: Mapped[int]
    active: Mapped[bool]
