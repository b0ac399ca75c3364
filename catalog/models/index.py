"""What keeps the Redis index in step with SQL: the outbox and the index's one row of state."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, CheckConstraint, String
from sqlalchemy.orm import Mapped, mapped_column

from catalog.models.base import Base, Instant, Numbered

STATE_ID = 1


class Outbox(Numbered, Base):
    """Something that the index has yet to learn. The kinds and their refs: catalog.outbox."""

    __tablename__ = "outbox"

    kind: Mapped[str] = mapped_column(String(16))
    ref: Mapped[str] = mapped_column(String(64))


class IndexState(Base):
    """One row. Whoever holds its lock writes the index; `generation` counts those turns.

    `catalog` is the identity of this database, written into the index's markers. `places` is what
    each bucket ought to hold: (generation, step) of its last write. Up to `swept_at`, campaigns
    that begin or end by time alone have been brought into the index (catalog.index.sweep).
    """

    __tablename__ = "index_state"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    catalog: Mapped[str] = mapped_column(String(36))
    generation: Mapped[int] = mapped_column(BigInteger)
    places: Mapped[list[list[int]] | None] = mapped_column(JSON)
    swept_at: Mapped[datetime | None] = mapped_column(Instant)
