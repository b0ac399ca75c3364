"""The recorder compared with a bare COPY of the same rows into the same PostgreSQL."""
