"""The tables, as SQLAlchemy models.

Four parts: what a company manages, venues with their campaigns, what the recorder writes, and the
state of processes. The recorder's tables have no foreign keys: their rows are many, and a record
that a row refers to may be deleted and stays counted. Values are checked where they are read
(catalog.inputs), not by constraints.
"""

import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Literal, get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Date,
    DateTime,
    Dialect,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Relationship, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

# SQLite numbers rows by itself only in a column declared INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")


class Instant(TypeDecorator[datetime]):
    """An aware datetime, stored and read in UTC. A naive one raises ValueError."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; SQLite stores it without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("an instant needs an offset")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Make it aware, in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """All tables, with names of constraints that are the same on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class HasId:
    """A table with a column `id` whose values are never reused.

    PostgreSQL's sequences only count up. SQLite without AUTOINCREMENT would reuse the id of the
    last row after its deletion.
    """

    id: Mapped[int] = mapped_column(Id, primary_key=True, sort_order=-1)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        table = cls.__dict__.get("__table__")
        if table is not None:
            table.dialect_options["sqlite"]["autoincrement"] = True


class SoftDeletable:
    """A record whose row stays, hidden, when it is deleted (catalog.session)."""

    deleted_at: Mapped[datetime | None] = mapped_column(Instant, sort_order=1)


def belongs_to(table: str, *, index: bool = False, unique: bool = False) -> Mapped[int]:
    """A foreign key to `table` that deletes on cascade."""
    key = ForeignKey(f"{table}.id", ondelete="CASCADE")
    return mapped_column(Id, key, index=index, unique=unique)


def linked_by(table: Table, order: Any) -> Relationship[Any]:
    """The records that a table of links names, in an order."""
    return relationship(secondary=table, lazy="raise", order_by=order, passive_deletes=True)


def unique_while_living(table: str, *columns: str) -> Index:
    """A unique index of the records that are not deleted."""
    name, living = f"uq_{table}_{'_'.join(columns)}", text("deleted_at IS NULL")
    return Index(name, *columns, unique=True, postgresql_where=living, sqlite_where=living)


def recorded_on() -> Mapped[datetime]:
    """When the row was written, by SQL's clock."""
    return mapped_column(Instant, default=func.now(), server_default=func.now())


def at_offset(instant: datetime, minutes: int) -> datetime:
    """The same instant at another offset, `minutes` east of UTC."""
    return instant.astimezone(timezone(timedelta(minutes=minutes)))


def offset_minutes(written: datetime) -> int:
    """The offset of an aware datetime, in minutes east of UTC."""
    offset = written.utcoffset()
    if offset is None:
        raise ValueError("an instant needs an offset")
    return int(offset.total_seconds() // 60)


class Company(HasId, Base):
    """The tenant: every other record belongs to one company. The name is unique.

    `caps` and `quiet_hours` are as the interface has them. `time_zone` is an IANA name;
    `visit_silence` is in seconds.
    """

    __tablename__ = "company"

    name: Mapped[str] = mapped_column(String(255), unique=True)
    image: Mapped[str | None] = mapped_column(Text)
    description: Mapped[str | None] = mapped_column(Text)
    active: Mapped[bool] = mapped_column(default=True)
    time_zone: Mapped[str | None] = mapped_column(String(64))
    caps: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    quiet_hours: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    presence: Mapped[bool] = mapped_column(default=False)
    visit_silence: Mapped[int | None]
    create_on: Mapped[datetime] = mapped_column(Instant)


class Account(HasId, Base):
    """A person who signs in. `email` is lower case.

    `permission` holds a level (0 nothing, 1 read, 2 read and write) per area.
    """

    __tablename__ = "account"

    company_id: Mapped[int] = belongs_to("company", index=True)
    company: Mapped[Company] = relationship(lazy="raise")
    email: Mapped[str] = mapped_column(String(255), unique=True)
    password_hash: Mapped[str] = mapped_column(String(255))
    name: Mapped[str | None] = mapped_column(String(255))
    fonction: Mapped[str | None] = mapped_column(String(255))
    active: Mapped[bool] = mapped_column(default=True)
    permission: Mapped[dict[str, Any]] = mapped_column(JSON)
    create_on: Mapped[datetime] = mapped_column(Instant)


class Application(HasId, Base):
    """A mobile application of the company, known by its key. No `expire_on`: it never expires."""

    __tablename__ = "application"

    company_id: Mapped[int] = belongs_to("company", index=True)
    company: Mapped[Company] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))
    type: Mapped[str] = mapped_column(String(64))
    api_key: Mapped[str] = mapped_column(String(255), unique=True)
    api_id: Mapped[str] = mapped_column(String(255), default="")
    active: Mapped[bool] = mapped_column(default=True)
    expire_on: Mapped[datetime | None] = mapped_column(Instant)


class Session(HasId, Base):
    """A signed-in account. `token_hash` is the SHA-256 of the token in hex; `valid` is the end."""

    __tablename__ = "session"

    account_id: Mapped[int] = belongs_to("account", index=True)
    account: Mapped[Account] = relationship(lazy="raise")
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    create_on: Mapped[datetime] = mapped_column(Instant)
    valid: Mapped[datetime] = mapped_column(Instant, index=True)


class Connector(HasId, Base):
    """The web service of a company that the role connector calls; one per company.

    `parameters` and `secret` are Fernet tokens (catalog.secrets), never plain text.
    """

    __tablename__ = "connector"

    company_id: Mapped[int] = belongs_to("company", unique=True)
    company: Mapped[Company] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))
    url: Mapped[str] = mapped_column(Text)
    method: Mapped[str] = mapped_column(String(8))
    auth: Mapped[str] = mapped_column(String(8))
    parameters: Mapped[str] = mapped_column(Text)
    secret: Mapped[str | None] = mapped_column(Text)


class Device(HasId, Base):
    """A phone as one company knows it: (company, udid). `name` is its operating system."""

    __tablename__ = "device"
    __table_args__ = (
        UniqueConstraint("company_id", "udid"),
        Index(None, "company_id", "id"),
        # Each batch updates the rows of its devices: an update within the page writes no index.
        {"postgresql_with": {"fillfactor": 70}},
    )

    company_id: Mapped[int] = belongs_to("company")
    company: Mapped[Company] = relationship(lazy="raise")
    udid: Mapped[str] = mapped_column(String(255))
    nb_beacon: Mapped[int] = mapped_column(BigInteger, default=0)
    nb_campaign: Mapped[int] = mapped_column(BigInteger, default=0)
    token_push: Mapped[str | None] = mapped_column(Text)
    name: Mapped[str | None] = mapped_column(String(255))
    version: Mapped[str | None] = mapped_column(String(255))
    model: Mapped[str | None] = mapped_column(String(255))
    id_connector: Mapped[int | None] = mapped_column(BigInteger)
    time_zone: Mapped[str | None] = mapped_column(String(64))
    test: Mapped[bool] = mapped_column(default=False)
    create_on: Mapped[datetime] = mapped_column(Instant)
    update_on: Mapped[datetime] = mapped_column(Instant)


class AuditEntry(HasId, Base):
    """One change of one record. It is never edited, and has no foreign keys: it outlives them.

    `name` is the record's at that time; empty for a device and an account, which are persons'.
    `action` is create, edit, delete or restore; `kind` and `ref` name the record; `before` and
    `after` hold the fields that changed, without secrets, long texts shortened.
    """

    __tablename__ = "audit_entry"
    __table_args__ = (Index(None, "company_id", "id"),)

    company_id: Mapped[int] = mapped_column(BigInteger)
    create_on: Mapped[datetime] = mapped_column(Instant)
    account_id: Mapped[int] = mapped_column(BigInteger)
    email: Mapped[str] = mapped_column(String(255))
    request: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str] = mapped_column(String(16))
    ref: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str] = mapped_column(String(255), default="")
    before: Mapped[dict[str, Any]] = mapped_column(JSON)
    after: Mapped[dict[str, Any]] = mapped_column(JSON)


def _link_table(one: str, other: str) -> Table:
    def key(table: str, *, index: bool) -> Column[int]:
        reference = ForeignKey(f"{table}.id", ondelete="CASCADE")
        return Column(f"{table}_id", Id, reference, primary_key=True, index=index)

    return Table(f"{one}_{other}", Base.metadata, key(one, index=False), key(other, index=True))


beacon_tag = _link_table("beacon", "tag")
geofence_tag = _link_table("geofence", "tag")
scan_tag_tag = _link_table("scan_tag", "tag")
campaign_beacon = _link_table("campaign", "beacon")
campaign_geofence = _link_table("campaign", "geofence")
campaign_scan_tag = _link_table("campaign", "scan_tag")
campaign_tag = _link_table("campaign", "tag")


class Venue(HasId, SoftDeletable, Base):
    """A place that a company runs.

    Sizes are metres; `time_zone` is an IANA name; `visit_silence` is in seconds.
    """

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
    visit_silence: Mapped[int | None]


class Tag(HasId, Base):
    """A word that links campaigns to places. Names are unique within a company."""

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
    __table_args__ = (unique_while_living("beacon", "uuid", "major", "minor"),)

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
    tags: Mapped[list[Tag]] = linked_by(beacon_tag, Tag.id)


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
    tags: Mapped[list[Tag]] = linked_by(geofence_tag, Tag.id)


class ScanTag(HasId, SoftDeletable, Base):
    """An NFC tag or QR code (`kind`) at a venue. Devices read `value` from it.

    No two of a company have the same kind and value, unless one is deleted.
    """

    __tablename__ = "scan_tag"
    __table_args__ = (unique_while_living("scan_tag", "company_id", "kind", "value"),)

    company_id: Mapped[int] = belongs_to("company")
    company: Mapped[Company] = relationship(lazy="raise")
    venue_id: Mapped[int] = belongs_to("venue", index=True)
    venue: Mapped[Venue] = relationship(lazy="raise")
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(255))
    value: Mapped[str] = mapped_column(Text)
    active: Mapped[bool]
    tags: Mapped[list[Tag]] = linked_by(scan_tag_tag, Tag.id)


EVERY_DAY = 0b1111111
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS = get_args(Weekday)


class Campaign(HasId, SoftDeletable, Base):
    """A campaign of a venue.

    `cache` is the delay between two sends as written, `delay` the same in seconds; minutes count
    from local midnight (`end_minute` up to 1440); `weekdays` is a mask, bit 0 Monday. `start` and
    `end` are instants with the offset (minutes east) as written. `on`, `dwell_minutes` and
    `priority` are as in rules.model.CampaignSnapshot.
    """

    __tablename__ = "campaign"

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
    start_minute: Mapped[int] = mapped_column(default=0)
    end_minute: Mapped[int] = mapped_column(default=24 * 60)
    active: Mapped[bool]
    weekdays: Mapped[int] = mapped_column(default=EVERY_DAY)
    on: Mapped[str] = mapped_column(String(16), default="detection")
    dwell_minutes: Mapped[int | None]
    priority: Mapped[int] = mapped_column(default=5)
    ignores_caps: Mapped[bool] = mapped_column(default=False)
    ignores_quiet_hours: Mapped[bool] = mapped_column(default=False)
    beacons: Mapped[list[Beacon]] = linked_by(campaign_beacon, Beacon.id)
    geofencings: Mapped[list[Geofence]] = linked_by(campaign_geofence, Geofence.id)
    scan_tags: Mapped[list[ScanTag]] = linked_by(campaign_scan_tag, ScanTag.id)
    tags: Mapped[list[Tag]] = linked_by(campaign_tag, Tag.id)

    @property
    def nfcs(self) -> list[ScanTag]:
        """The NFC tags among its `scan_tags`."""
        return [each for each in self.scan_tags if each.kind == "nfc"]

    @property
    def qrcodes(self) -> list[ScanTag]:
        """The QR codes among its `scan_tags`."""
        return [each for each in self.scan_tags if each.kind == "qrcode"]

    @property
    def start(self) -> datetime:
        """The first instant, in the offset in which it was written."""
        return at_offset(self.start_at, self.start_offset)

    @property
    def end(self) -> datetime:
        """The last instant, or the last whole day when it is at 00:00:00, as written."""
        return at_offset(self.end_at, self.end_offset)


_BY_DAY = {"postgresql_partition_by": "RANGE (create_on)", "sqlite_autoincrement": True}


def _trace_arguments(table: str) -> tuple[Any, ...]:
    """PostgreSQL would want `create_on` in the primary key; the identity is unique by itself."""
    return (
        PrimaryKeyConstraint("id").ddl_if(dialect="sqlite"),
        Index(f"ix_{table}_device_id_create_on_id", "device_id", "create_on", "id"),
        _BY_DAY,
    )


class DetectionTrace(Base):
    """A device detected a place at `create_on`; `status` is the zone.

    The place is `beacon_id`, `geofence_id` or `scan_tag_id`; the others are NULL.
    """

    __tablename__ = "detection_trace"
    __table_args__ = _trace_arguments(__tablename__)

    id: Mapped[int] = mapped_column(Id, Identity())
    device_id: Mapped[int] = mapped_column(BigInteger)
    venue_id: Mapped[int] = mapped_column(BigInteger)
    beacon_id: Mapped[int | None] = mapped_column(BigInteger)
    geofence_id: Mapped[int | None] = mapped_column(BigInteger)
    scan_tag_id: Mapped[int | None] = mapped_column(BigInteger)
    status: Mapped[str] = mapped_column(String(16))
    create_on: Mapped[datetime] = mapped_column(Instant)
    ip: Mapped[str | None] = mapped_column(Text)


class AuthenticationTrace(Base):
    """A device opened an application; `create_on` is when."""

    __tablename__ = "authentication_trace"
    __table_args__ = _trace_arguments(__tablename__)

    id: Mapped[int] = mapped_column(Id, Identity())
    device_id: Mapped[int] = mapped_column(BigInteger)
    application_id: Mapped[int] = mapped_column(BigInteger)
    create_on: Mapped[datetime] = mapped_column(Instant)
    ip: Mapped[str | None] = mapped_column(Text)


class Reception(Base):
    """A counted notification. While the row exists, its id is not counted again.

    `create_on` is when the device detected the beacon, by the detection's clock. `recorded_on` is
    when the notification was counted, by SQL's clock; retention goes by `recorded_on`.
    """

    __tablename__ = "reception"
    __table_args__ = (Index(None, "recorded_on"),)

    notification: Mapped[uuid.UUID] = mapped_column(Uuid, primary_key=True)
    device_id: Mapped[int] = mapped_column(BigInteger)
    campaign_id: Mapped[int] = mapped_column(BigInteger)
    create_on: Mapped[datetime] = mapped_column(Instant)
    recorded_on: Mapped[datetime] = recorded_on()


class Presence(Base):
    """The last trace of a device at a place; written if not every detection leaves a trace.

    `kind` is beacon, geofence or scan_tag, `ref` the place's id.
    """

    __tablename__ = "presence"
    __table_args__ = (Index(None, "recorded_on"),)

    device_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    ref: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    status: Mapped[str] = mapped_column(String(16))
    create_on: Mapped[datetime] = mapped_column(Instant)
    recorded_on: Mapped[datetime] = recorded_on()


class Statistic(Base):
    """The figures of one day for a venue, place or campaign (`kind`, its id is `ref`).

    `day` is in the venue's time zone. `detections` are those of beacons, `place_detections` those
    of other places. `devices` counts each device once a day. Test devices are left out.
    """

    __tablename__ = "statistic"
    __table_args__ = (Index(None, "venue_id", "day"),)

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    ref: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    venue_id: Mapped[int] = mapped_column(BigInteger)
    detections: Mapped[int] = mapped_column(BigInteger)
    place_detections: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    devices: Mapped[int] = mapped_column(BigInteger)
    notifications: Mapped[int] = mapped_column(BigInteger)


class VisitStatistic(Base):
    """The visits of one day to a venue, beacon or geofence (`kind`, its id is `ref`).

    `day` is that of the entry, in the venue's time zone. `ended` visits took at least `minutes` and
    less than the next of LENGTHS; `seconds` is the sum of their lengths. `begun` is counted in the
    row of 0 minutes. Test devices are left out.
    """

    __tablename__ = "visit_statistic"
    __table_args__ = (Index(None, "venue_id", "day"),)

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    ref: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    minutes: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    venue_id: Mapped[int] = mapped_column(BigInteger)
    begun: Mapped[int] = mapped_column(BigInteger)
    ended: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[int] = mapped_column(BigInteger)


class CountedVisitEvent(Base):
    """A counted enter or exit. While the row exists, its id is not counted again.

    It names no device. `at` is the entry, `recorded_on` is as in Reception.
    """

    __tablename__ = "visit_event"
    __table_args__ = (Index(None, "recorded_on"),)

    id: Mapped[uuid.UUID] = mapped_column(Uuid, primary_key=True)
    company_id: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(Instant)
    recorded_on: Mapped[datetime] = recorded_on()


class StatisticDevice(Base):
    """A device that a day's figures count already."""

    __tablename__ = "statistic_device"

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    ref: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    device_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


class Outbox(HasId, Base):
    """A change that is not yet in the index. catalog.session explains the kinds and their refs."""

    __tablename__ = "outbox"

    kind: Mapped[str] = mapped_column(String(16))
    ref: Mapped[str] = mapped_column(String(128))


class IndexState(Base):
    """A single row. The process that locks it writes the index; `generation` counts the writes.

    `catalog` is the identity of this database, written into the index's markers.
    """

    __tablename__ = "index_state"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    catalog: Mapped[str] = mapped_column(String(36))
    generation: Mapped[int] = mapped_column(BigInteger)


class RecorderOffset(Base):
    """All records before `next_offset` of the partition are recorded, and none behind it.

    The transaction that writes a batch advances the offset, and only from the value that the writer
    has read. So nothing is written twice, even if two recorders believe that they own the
    partition. `topic_id` distinguishes a topic from an earlier one of the same name; NULL if
    unknown. `replaced`: an earlier one was recorded too, so the figures in SQL count more records
    than the topic holds.
    """

    __tablename__ = "recorder_offset"

    topic: Mapped[str] = mapped_column(String(255), primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    next_offset: Mapped[int] = mapped_column(BigInteger)
    topic_id: Mapped[str | None] = mapped_column(String(32))
    replaced: Mapped[bool]
