"""Whether and when a call is retried."""

import pytest

from connectors.errors import CallError
from connectors.model import CallFault
from connectors.scheduled_call import RetryPolicy

POLICY = RetryPolicy(tries=3, first=0.5)


def at(
    tried: int, chance: float = 0.0, after: float | None = None, fresh: float = 100.0
) -> float | None:
    error = CallError(CallFault.STATUS, "", retriable=True, retry_after=after)
    return POLICY.next_try(tried=tried, error=error, now=10.0, fresh_until=fresh, chance=chance)


@pytest.mark.parametrize(
    ("tried", "chance", "after", "expected"),
    [
        (1, 0.0, None, 10.25),
        (1, 0.5, None, 10.375),
        (2, 0.0, None, 10.5),
        (2, 0.5, None, 10.75),
        (1, 0.5, 0.0, 10.375),
        (1, 0.5, 0.1, 10.375),
        (1, 0.5, 7.0, 17.0),
        (1, 0.5, 89.0, 99.0),
        (1, 0.5, 90.0, None),
        (3, 0.0, None, None),
        (3, 0.0, 1.0, None),
    ],
)
def test_the_next_try(
    tried: int, chance: float, after: float | None, expected: float | None
) -> None:
    assert at(tried, chance, after) == expected


@pytest.mark.parametrize(("fresh", "expected"), [(10.25, None), (10.26, 10.25), (9.0, None)])
def test_no_try_is_made_for_what_is_old_by_then(fresh: float, expected: float | None) -> None:
    assert at(1, fresh=fresh) == expected


def test_some_failures_are_final() -> None:
    error = CallError(CallFault.REPLY, "")
    assert POLICY.next_try(tried=1, error=error, now=0.0, fresh_until=100.0, chance=0.0) is None
