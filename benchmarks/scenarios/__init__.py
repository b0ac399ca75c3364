"""Scenarios with the whole product, and with growing catalogs; each is a command of its own."""
