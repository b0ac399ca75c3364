"""The traces of devices: which beacons they detected, and when they opened an application.

On PostgreSQL both are partitioned by day. Rows of other days are in the default partition.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TRACES = ("detection_trace", "authentication_trace")


def upgrade() -> None:
    """Make the tables."""
    _create_trace(
        "detection_trace",
        sa.Column("venue_id", sa.BigInteger(), nullable=False),
        sa.Column("beacon_id", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
    )
    _create_trace(
        "authentication_trace", sa.Column("application_id", sa.BigInteger(), nullable=False)
    )


def downgrade() -> None:
    """Drop the tables, their partitions included."""
    for table in _TRACES:
        op.drop_table(table)


def _create_trace(name: str, *columns: sa.Column[Any]) -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    # A primary key would have to hold the day too; the identity column is unique by itself.
    key = [] if is_postgresql else [sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}"))]
    op.create_table(
        name,
        sa.Column("id", _ID, sa.Identity(), nullable=False),
        sa.Column("device_id", sa.BigInteger(), nullable=False),
        *columns,
        sa.Column("create_on", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ip", sa.Text()),
        *key,
        postgresql_partition_by="RANGE (create_on)",
    )
    indexed = ["device_id", "create_on", "id"]
    op.create_index(op.f(f"ix_{name}_{'_'.join(indexed)}"), name, indexed)
    if is_postgresql:
        op.execute(f"CREATE TABLE {name}_default PARTITION OF {name} DEFAULT")
