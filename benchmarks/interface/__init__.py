"""Requests a second of the management interface, beside a bare route with the same bytes."""
