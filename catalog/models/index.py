"""What keeps the Redis index in step with SQL: the outbox and the index's one row of state."""

from sqlalchemy import BigInteger, CheckConstraint, String
from sqlalchemy.orm import Mapped, mapped_column

from catalog.models.base import Base, Numbered

STATE_ID = 1


class Outbox(Numbered, Base):
    """Something that the index has yet to learn. The kinds and their refs: catalog.outbox."""

    __tablename__ = "outbox"

    kind: Mapped[str] = mapped_column(String(16))
    ref: Mapped[str] = mapped_column(String(64))


class IndexState(Base):
    """One row. Whoever holds its lock writes the index; `generation` counts those turns.

    `catalog` is the identity of this database, written into the index's markers.
    """

    __tablename__ = "index_state"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    catalog: Mapped[str] = mapped_column(String(36))
    generation: Mapped[int] = mapped_column(BigInteger)
