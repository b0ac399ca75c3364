"""What belongs to a company besides venues: accounts, applications, connector, devices, audit."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Index,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship, validates

from catalog.models.base import Base, HasId, Instant, belongs_to, offset_minutes


class Company(HasId, Base):
    """The tenant: every other record belongs to one company. The name is unique."""

    __tablename__ = "company"

    name: Mapped[str] = mapped_column(String(255), unique=True)
    image: Mapped[str | None] = mapped_column(Text)
    description: Mapped[str | None] = mapped_column(Text)
    active: Mapped[bool] = mapped_column(default=True)
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
    __table_args__ = (
        CheckConstraint("method IN ('GET', 'POST')", name="method"),
        CheckConstraint("auth IN ('header', 'get')", name="auth"),
    )

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
    test: Mapped[bool] = mapped_column(default=False)
    create_on: Mapped[datetime] = mapped_column(Instant)
    update_on: Mapped[datetime] = mapped_column(Instant)


class AuditEntry(HasId, Base):
    """One change of one record. It is never edited, and has no foreign keys: it outlives them.

    `action` is create, edit or delete; `kind` and `ref` name the record; `before` and `after`
    hold the fields that changed, without secrets, long texts shortened.
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
    before: Mapped[dict[str, Any]] = mapped_column(JSON)
    after: Mapped[dict[str, Any]] = mapped_column(JSON)
