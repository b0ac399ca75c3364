"""Who holds what: companies, their accounts and their applications."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship, validates

from catalog.models.base import Base, Instant, Numbered, belongs_to, offset_minutes


class Company(Numbered, Base):
    """An account holder's company: everything below belongs to one. The name is unique."""

    __tablename__ = "company"

    name: Mapped[str] = mapped_column(String(255), unique=True)
    image: Mapped[str | None] = mapped_column(Text)
    description: Mapped[str | None] = mapped_column(Text)
    active: Mapped[bool] = mapped_column(default=True)
    create_on: Mapped[datetime] = mapped_column(Instant)


class Account(Numbered, Base):
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


class Application(Numbered, Base):
    """A mobile application of the company, known by its key. No `expire_on`: it never expires.

    `expire_offset` is the offset (minutes east) in which `expire_on` was written.
    """

    __tablename__ = "application"

    company_id: Mapped[int] = belongs_to("company", index=True)
    company: Mapped[Company] = relationship(lazy="raise")
    name: Mapped[str] = mapped_column(String(255))
    type: Mapped[str] = mapped_column(String(64))
    api_key: Mapped[str] = mapped_column(String(255), unique=True)
    api_id: Mapped[str] = mapped_column(String(255), default="")
    active: Mapped[bool] = mapped_column(default=True)
    expire_on: Mapped[datetime | None] = mapped_column(Instant)
    expire_offset: Mapped[int] = mapped_column(default=0, server_default="0")

    @validates("expire_on")
    def _keep_offset(self, _key: str, written: datetime | None) -> datetime | None:
        self.expire_offset = 0 if written is None else offset_minutes(written)
        return written
