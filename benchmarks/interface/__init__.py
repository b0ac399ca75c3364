"""Requests a second of the management interface, compared with a bare route of the same bytes."""
