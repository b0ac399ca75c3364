"""Sessions of the management interface, and the count of changes of access rights."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the tables, and the one row of the count."""
    op.create_table(
        "session",
        sa.Column("id", _ID, nullable=False),
        sa.Column("account_id", _ID, nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("create_on", _INSTANT, nullable=False),
        sa.Column("valid", _INSTANT, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["account.id"],
            name=op.f("fk_session_account_id_account"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_session_token_hash")),
    )
    op.create_index(op.f("ix_session_account_id"), "session", ["account_id"])
    op.create_index(op.f("ix_session_valid"), "session", ["valid"])
    state = op.create_table(
        "access_state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_access_state_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_state")),
    )
    op.bulk_insert(state, [{"id": 1, "revision": 0}])
    # The list of a company's devices is read page by page.
    op.create_index(op.f("ix_device_company_id_id"), "device", ["company_id", "id"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_index(op.f("ix_device_company_id_id"), "device")
    op.drop_table("access_state")
    op.drop_table("session")
