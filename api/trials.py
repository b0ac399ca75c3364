"""Tests of connectors under way: one of a company at a time, and a few in all."""

from collections.abc import Iterator
from contextlib import contextmanager

from api.errors import ApiError, unavailable


class TrialSlots:
    """Of this process. Nobody waits for a slot: a test takes no longer than one call."""

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._companies: set[int] = set()

    @contextmanager
    def slot(self, company_id: int) -> Iterator[None]:
        """Hold a slot. Raises ApiError: 429 for a company's second one, 503 beyond `most`."""
        if company_id in self._companies:
            raise ApiError(
                429,
                "the company's connector is being tested already",
                headers={"retry-after": "1"},
            )
        if len(self._companies) >= self._most:
            raise unavailable("too many connectors are being tested; try again")
        self._companies.add(company_id)
        try:
            yield
        finally:
            self._companies.discard(company_id)
