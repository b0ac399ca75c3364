"""The tables that the recorder writes: traces, receptions and daily statistics.

The tables have no foreign keys: their rows are many, and a record that a row refers to may be
deleted and stays counted. The single index of a trace table is for the single query: a device's
newest rows.
"""

import uuid
from datetime import date, datetime

from sqlalchemy import BigInteger, CheckConstraint, Date, Identity, Index, String, Text, Uuid
from sqlalchemy.orm import Mapped, mapped_column

from catalog.models.base import Base, Id, Instant, recorded_on

_BY_DAY = {"postgresql_partition_by": "RANGE (create_on)", "sqlite_autoincrement": True}


class DetectionTrace(Base):
    """A device detected a beacon at `create_on`; `status` is the zone."""

    __tablename__ = "detection_trace"
    __table_args__ = (
        Index("ix_detection_trace_device_id_create_on_id", "device_id", "create_on", "id"),
        _BY_DAY,
    )

    id: Mapped[int] = mapped_column(Id, Identity(), primary_key=True)
    device_id: Mapped[int] = mapped_column(BigInteger)
    venue_id: Mapped[int] = mapped_column(BigInteger)
    beacon_id: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str] = mapped_column(String(16))
    create_on: Mapped[datetime] = mapped_column(Instant)
    ip: Mapped[str | None] = mapped_column(Text)


class AuthenticationTrace(Base):
    """A device opened an application; `create_on` is when."""

    __tablename__ = "authentication_trace"
    __table_args__ = (
        Index("ix_authentication_trace_device_id_create_on_id", "device_id", "create_on", "id"),
        _BY_DAY,
    )

    id: Mapped[int] = mapped_column(Id, Identity(), primary_key=True)
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
    """The last trace of a device at a beacon; written if not every detection leaves a trace."""

    __tablename__ = "presence"
    __table_args__ = (Index(None, "recorded_on"),)

    device_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    beacon_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    status: Mapped[str] = mapped_column(String(16))
    create_on: Mapped[datetime] = mapped_column(Instant)
    recorded_on: Mapped[datetime] = recorded_on()


class Statistic(Base):
    """The figures of one day for a venue, beacon or campaign (`kind`, its id is `ref`).

    `day` is in the venue's time zone. `devices` counts each device once a day. Test devices are
    left out.
    """

    __tablename__ = "statistic"
    __table_args__ = (
        CheckConstraint("kind IN ('venue', 'beacon', 'campaign')", name="kind"),
        Index(None, "venue_id", "day"),
    )

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    ref: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    venue_id: Mapped[int] = mapped_column(BigInteger)
    detections: Mapped[int] = mapped_column(BigInteger)
    devices: Mapped[int] = mapped_column(BigInteger)
    notifications: Mapped[int] = mapped_column(BigInteger)


class StatisticDevice(Base):
    """A device that a day's figures count already."""

    __tablename__ = "statistic_device"

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    ref: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    device_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
