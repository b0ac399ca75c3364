"""The progress of processes: the outbox and the index, access rights, the recorder."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, CheckConstraint, String
from sqlalchemy.orm import Mapped, mapped_column

from catalog.models.base import Base, HasId, Instant


class Outbox(HasId, Base):
    """A change that is not yet in the index. catalog.outbox explains the kinds and their refs."""

    __tablename__ = "outbox"

    kind: Mapped[str] = mapped_column(String(16))
    ref: Mapped[str] = mapped_column(String(64))


class IndexState(Base):
    """A single row. The process that locks it writes the index; `generation` counts the writers.

    `catalog` is the identity of this database, written into the index's markers. `places` has the
    (generation, step) of each bucket's last write. Up to `swept_at`, campaigns that begin or end by
    date alone have been put into the outbox (catalog.index.content).
    """

    __tablename__ = "index_state"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    catalog: Mapped[str] = mapped_column(String(36))
    generation: Mapped[int] = mapped_column(BigInteger)
    places: Mapped[list[list[int]] | None] = mapped_column(JSON)
    swept_at: Mapped[datetime | None] = mapped_column(Instant)


class AccessState(Base):
    """A single row. `revision` counts the changes of access rights (catalog.access)."""

    __tablename__ = "access_state"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    revision: Mapped[int] = mapped_column(BigInteger)


class RecorderOffset(Base):
    """All records before `next_offset` of the partition are recorded, and none behind it.

    The transaction that writes a batch advances the offset, and only from the value that the writer
    has read. So nothing is written twice, even if two recorders believe that they own the
    partition. `topic_id` distinguishes a topic from an earlier one of the same name; NULL if
    unknown.
    """

    __tablename__ = "recorder_offset"

    topic: Mapped[str] = mapped_column(String(255), primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    next_offset: Mapped[int] = mapped_column(BigInteger)
    topic_id: Mapped[str | None] = mapped_column(String(32))


class ReplacedTopic(Base):
    """A topic that was recorded and then deleted and created again under its name.

    The figures in SQL then count more records than the new topic holds.
    """

    __tablename__ = "recorder_past"

    topic: Mapped[str] = mapped_column(String(255), primary_key=True)
    ended_on: Mapped[datetime] = mapped_column(Instant)
