"""What a reply leads to."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import CallError
from connectors.model import CallFault, Content, Declined
from connectors.reply import read_reply, retry_after
from connectors.schedule import ScheduleLimits
from tests.connectors.services import ABSURD_WAITS

NOW = 1_792_000_000.0


def read(status: int = 200, body: Any = b"", **headers: str) -> Content | Declined:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_reply(status, named, raw, now=NOW)


@pytest.mark.parametrize("name", ["template", "url", "html"])
def test_content(name: str) -> None:
    body = {"title": "T", "push": "P", "format": name, name: "x é", "more": [1]}
    assert read(body=body) == Content(format=name, content="x é", title="T", push="P")  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [{}, {"title": None, "push": None}, {"send": True}])
def test_title_and_push_may_be_left_to_the_campaign(missing: dict[str, Any]) -> None:
    body = {"format": "url", "url": "https://e.org/"} | missing
    assert read(body=body) == Content(format="url", content="https://e.org/")


@pytest.mark.parametrize(
    ("status", "body"),
    [(204, b""), (200, {"send": False}), (200, {"send": False, "format": "url", "url": "x"})],
)
def test_refusals(status: int, body: Any) -> None:
    assert read(status, body) == Declined()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"not json",
        b'{"format": "url", "url": "x"',
        b'\xef\xbb\xbf{"send": false}',
        b'{"format": "url", "url": "\xff"}',
        b"[" * 60_000,
        {},
        {"send": "false"},
        {"send": 0},
        {"format": "pdf", "pdf": "x"},
        {"format": "connector"},
        {"format": "url"},
        {"format": "url", "url": None},
        {"format": "url", "url": ""},
        {"format": "url", "url": "  "},
        {"format": "url", "html": "x"},
        {"format": "url", "url": 5},
        {"format": "url", "url": "x", "title": 5},
        {"format": "url", "url": "x", "push": ["x"]},
        {"format": ["url"], "url": "x"},
    ],
)
def test_invalid_content_is_refused(body: Any) -> None:
    with pytest.raises(CallError) as caught:
        read(body=body)
    assert (caught.value.fault, caught.value.retriable) == (CallFault.REPLY, False)
    assert not caught.value.counts


def test_a_reason_quotes_nothing_of_the_reply() -> None:
    with pytest.raises(CallError) as caught:
        read(body={"format": "very private", "title": "very private"})
    assert "private" not in caught.value.detail
    assert "$.format" in caught.value.detail


@pytest.mark.parametrize(
    ("status", "retriable", "counts"),
    [
        (201, False, False),
        (202, False, False),
        (206, False, False),
        (301, False, False),
        (304, False, False),
        (400, False, False),
        (401, False, False),
        (404, False, False),
        (408, False, False),
        (429, True, True),
        (500, False, True),
        (501, False, True),
        (502, True, True),
        (503, True, True),
        (504, True, True),
        (599, False, True),
    ],
)
def test_other_statuses(status: int, retriable: bool, counts: bool) -> None:
    with pytest.raises(CallError) as caught:
        read(status, {"send": False})
    error = caught.value
    assert (error.fault, error.retriable, error.counts) == (CallFault.STATUS, retriable, counts)
    assert str(status) in error.detail


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Wed, 14 Oct 2026 17:46:50 GMT", 10.0),
        ("Wednesday, 14-Oct-26 17:46:50 GMT", 10.0),
        ("Wed, 14 Oct 2026 17:46:00 GMT", 0.0),
        ("Wed, 14 Oct 2026 19:46:50 +0200", 10.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("9" * 400, None),
        ("٣", None),
        ("Wed, 99 Oct 2026 17:46:50 GMT", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def _is_a_wait(value: float | None) -> bool:
    return value is None or (math.isfinite(value) and value >= 0)


@pytest.mark.parametrize("value", ABSURD_WAITS)
@pytest.mark.parametrize("status", [301, 404, 429, 500, 503])
def test_an_absurd_date_is_a_failed_call(value: str, status: int) -> None:
    with pytest.raises(CallError) as caught:
        read_reply(status, {"retry-after": value}, b"", now=NOW)
    assert caught.value.fault is CallFault.STATUS
    assert _is_a_wait(caught.value.retry_after)
    ScheduleLimits().next_try(
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
