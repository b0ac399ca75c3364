"""When a row was recorded, by SQL's clock: retention of receptions and presences goes by that.

Also the topics that were recorded and then deleted and created again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_INSTANT = sa.DateTime(timezone=True)
_TABLES = ("reception", "presence")
_DEVICES = sa.table("statistic_device", sa.column("day", sa.Date()))


def upgrade() -> None:
    """Add the column: rows that are there count as recorded now, which keeps them long enough."""
    for table in _TABLES:
        op.add_column(
            table, sa.Column("recorded_on", _INSTANT, nullable=False, server_default=_now())
        )
    op.drop_index(op.f("ix_reception_create_on"), "reception")
    for table in _TABLES:
        op.create_index(op.f(f"ix_{table}_recorded_on"), table, ["recorded_on"])
    # Days that never come have no devices to be counted once more.
    last = datetime.now(UTC).date() + timedelta(days=2)
    op.execute(_DEVICES.delete().where(_DEVICES.c.day > last))
    op.create_table(
        "recorder_past",
        sa.Column("topic", sa.String(length=255), nullable=False),
        sa.Column("ended_on", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("topic", name=op.f("pk_recorder_past")),
    )


def downgrade() -> None:
    """Drop what was added."""
    op.drop_table("recorder_past")
    for table in _TABLES:
        op.drop_index(op.f(f"ix_{table}_recorded_on"), table)
    op.create_index(op.f("ix_reception_create_on"), "reception", ["create_on"])
    for table in _TABLES:
        op.drop_column(table, "recorded_on")


def _now() -> sa.TextClause:
    """SQLite adds no column whose default is a function: rows that are there get this instant,
    and the recorder's statements say when those that come are recorded."""
    if op.get_bind().dialect.name == "postgresql":
        return sa.text("now()")
    return sa.text(f"'{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}'")
