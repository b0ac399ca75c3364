"""Every text in Retry-After is either a wait or ignored."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import CallError
from connectors.model import CallFault
from connectors.reply import read_reply, retry_after
from connectors.scheduled_call import RetryPolicy
from tests.hostile.connectors.services import ABSURD_WAITS

NOW = 1_700_000_000.0


def _is_a_wait(value: float | None) -> bool:
    return value is None or (math.isfinite(value) and value >= 0)


@pytest.mark.parametrize("value", ABSURD_WAITS)
@pytest.mark.parametrize("status", [301, 404, 429, 500, 503])
def test_an_absurd_date_is_a_failed_call(value: str, status: int) -> None:
    with pytest.raises(CallError) as caught:
        read_reply(status, {"retry-after": value}, b"", now=NOW)
    assert caught.value.fault is CallFault.STATUS
    assert _is_a_wait(caught.value.retry_after)
    RetryPolicy().next_try(
        tried=1, error=caught.value, now=NOW, fresh_until=NOW + 300, chance=0.999
    )


digits = st.text("0123456789", min_size=1, max_size=30)
dates = st.builds(
    "{}, {} {} {} {}:{}:{} {}".format,
    st.sampled_from(["Mon", "Monday", "", "日"]),
    digits,
    st.sampled_from(["Jan", "january", "13", ""]),
    digits,
    digits,
    digits,
    digits,
    st.one_of(st.sampled_from(["GMT", "UTC", "EST", ""]), digits.map("+{}".format)),
)


@given(value=st.one_of(st.text(max_size=80), dates))
def test_any_text_is_a_wait_or_nothing(value: str) -> None:
    assert _is_a_wait(retry_after(value, NOW))
