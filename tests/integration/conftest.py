"""Fixtures that several parts share."""

import pytest
from argon2 import PasswordHasher
from argon2.profiles import CHEAPEST


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password costs 100 ms and 64 MB on purpose; these tests are about everything else."""
    monkeypatch.setattr("catalog.passwords._hasher", PasswordHasher.from_parameters(CHEAPEST))
