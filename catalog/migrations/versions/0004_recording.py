"""How far the recorder has read, what it has counted, and the figures of each day."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_INSTANT = sa.DateTime(timezone=True)
_TABLES = ("recorder_offset", "reception", "presence", "statistic", "statistic_device")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "recorder_offset",
        sa.Column("topic", sa.String(length=255), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        _number("next_offset"),
        sa.PrimaryKeyConstraint("topic", "partition", name=op.f("pk_recorder_offset")),
    )
    op.create_table(
        "reception",
        sa.Column("notification", sa.Uuid(), nullable=False),
        _number("device_id"),
        _number("campaign_id"),
        sa.Column("create_on", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("notification", name=op.f("pk_reception")),
    )
    op.create_index(op.f("ix_reception_create_on"), "reception", ["create_on"])
    op.create_table(
        "presence",
        _number("device_id"),
        _number("beacon_id"),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("create_on", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("device_id", "beacon_id", name=op.f("pk_presence")),
    )
    _create_statistics()


def downgrade() -> None:
    """Drop the tables."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_statistics() -> None:
    op.create_table(
        "statistic",
        *_figure(),
        _number("venue_id"),
        _number("detections"),
        _number("devices"),
        _number("notifications"),
        sa.CheckConstraint(
            "kind IN ('venue', 'beacon', 'campaign')", name=op.f("ck_statistic_kind")
        ),
        sa.PrimaryKeyConstraint("day", "kind", "ref", name=op.f("pk_statistic")),
    )
    op.create_index(op.f("ix_statistic_venue_id_day"), "statistic", ["venue_id", "day"])
    op.create_table(
        "statistic_device",
        *_figure(),
        _number("device_id"),
        sa.PrimaryKeyConstraint(
            "day", "kind", "ref", "device_id", name=op.f("pk_statistic_device")
        ),
    )


def _figure() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        _number("ref"),
    )


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)
