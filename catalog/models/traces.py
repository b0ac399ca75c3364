"""The traces of devices. The role recorder writes them, the management interface shows them.

They have no foreign keys: rows are many, and what they point at may be deleted meanwhile. The one
index serves the one question that is asked of them: the newest of a device.
"""

from datetime import datetime

from sqlalchemy import BigInteger, Identity, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from catalog.models.base import Base, Id, Instant

_BY_DAY = {"postgresql_partition_by": "RANGE (create_on)"}


class DetectionTrace(Base):
    """A device heard a beacon; `status` is the zone, `create_on` when it was detected."""

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
