"""The beacon index in Redis: its shape, and how it is written from SQL."""
