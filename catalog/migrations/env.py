"""Alembic's entry point, on the connection that catalog.migrate has opened."""

from alembic import context

from catalog.models import Base

_connection = context.config.attributes["connection"]
context.configure(
    connection=_connection,
    target_metadata=Base.metadata,
    render_as_batch=_connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
