"""The recorder beside a bare COPY of the same rows into the same PostgreSQL."""
