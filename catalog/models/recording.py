"""What the role recorder keeps besides traces: how far it has read, receptions, statistics.

No foreign keys, as with traces: what they point at may be deleted, and stays counted.
"""

import uuid
from datetime import date, datetime

from sqlalchemy import BigInteger, CheckConstraint, Date, Index, String, Uuid
from sqlalchemy.orm import Mapped, mapped_column

from catalog.models.base import Base, Instant, recorded_on


class RecorderOffset(Base):
    """Everything before `next_offset` of the partition is recorded, and nothing behind it.

    It moves in the transaction that writes what the records led to, and only from the value that
    the writer knows: so nothing is written twice, whoever believes to own the partition.
    `topic_id` tells a topic made anew under the same name; NULL where it is not known.
    """

    __tablename__ = "recorder_offset"

    topic: Mapped[str] = mapped_column(String(255), primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    next_offset: Mapped[int] = mapped_column(BigInteger)
    topic_id: Mapped[str | None] = mapped_column(String(32))


class RecorderPast(Base):
    """A topic of this name was recorded, and is no more: a new one bears its name.

    SQL's figures then hold more than the topic says.
    """

    __tablename__ = "recorder_past"

    topic: Mapped[str] = mapped_column(String(255), primary_key=True)
    ended_on: Mapped[datetime] = mapped_column(Instant)


class Reception(Base):
    """A notification that was counted; its id is not counted again while the row is kept.

    `create_on` is when its detection was made, by whatever clock; `recorded_on` is SQL's own clock
    when it was counted, and how long the row is kept goes by that.
    """

    __tablename__ = "reception"
    __table_args__ = (Index(None, "recorded_on"),)

    notification: Mapped[uuid.UUID] = mapped_column(Uuid, primary_key=True)
    device_id: Mapped[int] = mapped_column(BigInteger)
    campaign_id: Mapped[int] = mapped_column(BigInteger)
    create_on: Mapped[datetime] = mapped_column(Instant)
    recorded_on: Mapped[datetime] = recorded_on()


class Presence(Base):
    """The last trace of a device at a beacon, where not every detection makes one."""

    __tablename__ = "presence"
    __table_args__ = (Index(None, "recorded_on"),)

    device_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    beacon_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    status: Mapped[str] = mapped_column(String(16))
    create_on: Mapped[datetime] = mapped_column(Instant)
    recorded_on: Mapped[datetime] = recorded_on()


class Statistic(Base):
    """A day of a venue, beacon or campaign (`kind`, its id is `ref`); no test devices.

    `day` is the venue's own, and `devices` counts each device once in it.
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
    """A device that a day's figures have counted already."""

    __tablename__ = "statistic_device"

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    ref: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    device_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
