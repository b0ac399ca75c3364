"""Room in the pages of `device`, so that a recorder's update stays in its page (decision 0134).

Nothing is rewritten. Neither this nor a recorder waits for the other.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """PostgreSQL fills new pages to 70%; SQLite has no such setting, and updates in place."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE device SET (fillfactor = 70)")


def downgrade() -> None:
    """Fill pages again."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE device RESET (fillfactor)")
