"""Who is signed in at the management interface."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from catalog.models.base import Base, Instant, Numbered, belongs_to
from catalog.models.company import Account


class Session(Numbered, Base):
    """One signing in. `token_hash` is the SHA-256 of the token, in hex; `valid` is its end."""

    __tablename__ = "session"

    account_id: Mapped[int] = belongs_to("account", index=True)
    account: Mapped[Account] = relationship(lazy="raise")
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    create_on: Mapped[datetime] = mapped_column(Instant)
    valid: Mapped[datetime] = mapped_column(Instant, index=True)


class AccessState(Base):
    """One row. `revision` counts the changes of who may do what (catalog.access)."""

    __tablename__ = "access_state"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    revision: Mapped[int] = mapped_column(BigInteger)
