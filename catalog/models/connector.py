"""The web service that a company is asked at, one per company."""

from sqlalchemy import CheckConstraint, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from catalog.models.base import Base, Numbered, belongs_to
from catalog.models.company import Company


class Connector(Numbered, Base):
    """`parameters` and `secret` are Fernet tokens (catalog.secrets); never plain text."""

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
