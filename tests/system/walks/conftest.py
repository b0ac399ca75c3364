"""The fixtures of the interface's tests, for the account holder too."""

from tests.api.conftest import database, processes, served

__all__ = ["database", "processes", "served"]
