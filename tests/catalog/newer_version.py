"""The migrations of a version that does not exist yet: this one's, and one more."""

import shutil
from pathlib import Path

import pytest

from catalog import migrate

_MIGRATION = '''
"""A column that has a default, and a table that SQLite can only change by making it anew."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.add_column(
        "campaign", sa.Column("weight", sa.Integer(), nullable=False, server_default="5")
    )
    with op.batch_alter_table("venue") as venue:
        venue.alter_column("address", existing_type=sa.Text(), nullable=True)
    op.create_table("newer", sa.Column("id", sa.Integer(), primary_key=True))
'''


def add_newer_version(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let `migrate` find a second migration, in a copy of the product's."""
    shutil.copytree(migrate.MIGRATIONS, folder)
    (folder / "versions" / "0002_newer.py").write_text(_MIGRATION)
    monkeypatch.setattr(migrate, "MIGRATIONS", folder)
