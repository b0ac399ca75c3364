"""The topic's id beside the recorder's offset: tells a topic from an earlier one of its name."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the column; what is NULL is filled in at the next start of a recorder."""
    op.add_column("recorder_offset", sa.Column("topic_id", sa.String(length=32), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("recorder_offset", "topic_id")
