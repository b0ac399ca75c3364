"""The schema's history, for Alembic; catalog.migrate runs it."""
