"""The base of all tables: names of constraints, ids, instants."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, ForeignKey, Integer, MetaData, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

# SQLite numbers rows by itself only in a column declared INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")


class Instant(TypeDecorator[datetime]):
    """An aware datetime, stored and read in UTC. A naive one raises ValueError."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; SQLite stores it without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("an instant needs an offset")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Make it aware, in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """All tables, with names of constraints that are the same on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class HasId:
    """A table with a column `id` whose values are never reused.

    PostgreSQL's sequences only count up. SQLite without AUTOINCREMENT would reuse the id of the
    last row after its deletion.
    """

    id: Mapped[int] = mapped_column(Id, primary_key=True, sort_order=-1)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        table = cls.__dict__.get("__table__")
        if table is not None:
            table.dialect_options["sqlite"]["autoincrement"] = True


class SoftDeletable:
    """A record whose row stays, hidden, when it is deleted (catalog.soft_deletion)."""

    deleted_at: Mapped[datetime | None] = mapped_column(Instant, sort_order=1)


def belongs_to(table: str, *, index: bool = False, unique: bool = False) -> Mapped[int]:
    """A foreign key to `table` that deletes on cascade."""
    key = ForeignKey(f"{table}.id", ondelete="CASCADE")
    return mapped_column(Id, key, index=index, unique=unique)


def recorded_on() -> Mapped[datetime]:
    """When the row was written, by SQL's clock."""
    return mapped_column(Instant, default=func.now(), server_default=func.now())


def at_offset(instant: datetime, minutes: int) -> datetime:
    """The same instant at another offset, `minutes` east of UTC."""
    return instant.astimezone(timezone(timedelta(minutes=minutes)))


def offset_minutes(written: datetime) -> int:
    """The offset of an aware datetime, in minutes east of UTC."""
    offset = written.utcoffset()
    if offset is None:
        raise ValueError("an instant needs an offset")
    return int(offset.total_seconds() // 60)
