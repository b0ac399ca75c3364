"""The first tables: the catalog, sessions and audit, the recorder's tables, the index's state.

No version with these tables was published, so they are the models' own. From the first release on
this file must stay as it is: copy the statements that it runs before a model changes.
"""

import uuid

from alembic import op

from catalog.models import Base, IndexState

revision: str = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Make the tables and the row of `index_state`, which gives the database its identity."""
    connection = op.get_bind()
    Base.metadata.create_all(connection, checkfirst=False)
    state = {"id": 1, "catalog": str(uuid.uuid4()), "generation": 0}
    op.bulk_insert(IndexState.__table__, [state])  # type: ignore[arg-type]  # a Table
