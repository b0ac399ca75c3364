"""The last write of each bucket of the index, and until when campaigns were checked for dates.

The catalog takes a new identity, so that the index in Redis is rebuilt in its new form.
"""

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("index_state", sa.Column("places", sa.JSON(), nullable=True))
    op.add_column("index_state", sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True))
    state = sa.table("index_state", sa.column("catalog"))
    op.execute(state.update().values(catalog=str(uuid.uuid4())))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("index_state", "swept_at")
    op.drop_column("index_state", "places")
