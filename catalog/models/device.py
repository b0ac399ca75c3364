"""The phones of a company's visitors."""

from datetime import datetime

from sqlalchemy import BigInteger, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from catalog.models.base import Base, Instant, Numbered, belongs_to
from catalog.models.company import Company


class Device(Numbered, Base):
    """A phone as one company knows it: (company, udid). `name` is its operating system."""

    __tablename__ = "device"
    __table_args__ = (UniqueConstraint("company_id", "udid"), Index(None, "company_id", "id"))

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
    test: Mapped[bool] = mapped_column(default=False)
    create_on: Mapped[datetime] = mapped_column(Instant)
    update_on: Mapped[datetime] = mapped_column(Instant)
