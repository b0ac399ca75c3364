"""Fixtures that several parts share."""

from datetime import UTC, date, datetime

import pytest
from argon2 import PasswordHasher
from argon2.profiles import CHEAPEST


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password costs 100 ms and 64 MB on purpose; these tests are about everything else."""
    monkeypatch.setattr("catalog.passwords._hasher", PasswordHasher.from_parameters(CHEAPEST))


@pytest.fixture
def today() -> date:
    """The day in UTC when the test begins: a run of all tests may last past midnight."""
    return datetime.now(UTC).date()
