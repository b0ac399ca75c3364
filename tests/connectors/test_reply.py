"""What a reply leads to."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.client import Reply, read_reply, retry_after
from connectors.model import CallFault, Content, Declined, Failed

NOW = 1_792_000_000.0


def read(status: int = 200, body: Any = b"") -> Content | Declined:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_reply(Reply(status, {}, raw), now=NOW)


@pytest.mark.parametrize("name", ["template", "url", "html"])
def test_content(name: str) -> None:
    body = {"title": "T", "push": "P", "format": name, name: "x é", "more": [1]}
    assert read(body=body) == Content(format=name, content="x é", title="T", push="P")  # type: ignore[arg-type]
    del body["title"], body["push"]
    assert read(body=body) == Content(format=name, content="x é")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "body"),
    [(204, b""), (200, {"send": False}), (200, {"send": False, "format": "url", "url": "x"})],
)
def test_no_notification(status: int, body: Any) -> None:
    assert read(status, body) == Declined()


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"not json",
        b"[" * 60_000,
        b'{"format": NaN}',
        b'{"format": ' + b"9" * 60_000 + b"}",
        b'\xef\xbb\xbf{"send": false}',
        b'{"send": false}{"send": false}',
        b'{"format": "html", "html": "x", "title": "\\ud800"}',
        b'{"format": "html", "html": "\xed\xa0\x80"}',
        b'{"format": "url", "url": "\xff"}',
        {},
        {"send": "false"},
        {"format": "connector"},
        {"format": "url", "url": None},
        {"format": "url", "url": "  "},
        {"format": "url", "html": "x"},
        {"format": "url", "url": "x", "title": 5},
        {"format": ["very private"], "url": "x"},
    ],
)
def test_invalid_content_is_refused_and_not_quoted(body: Any) -> None:
    with pytest.raises(Failed) as caught:
        read(body=body)
    error = caught.value
    assert (error.fault, error.retriable, error.counts) == (CallFault.REPLY, False, False)
    assert "private" not in error.detail


@pytest.mark.parametrize(
    ("status", "retriable", "counts"),
    [
        (202, False, False),
        (301, False, False),
        (404, False, False),
        (429, True, True),
        (500, False, True),
        (503, True, True),
    ],
)
def test_other_statuses(status: int, retriable: bool, counts: bool) -> None:
    with pytest.raises(Failed) as caught:
        read(status, {"send": False})
    error = caught.value
    assert (error.fault, error.retriable, error.counts) == (CallFault.STATUS, retriable, counts)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (" 7 ", 7.0),
        ("Wed, 14 Oct 2026 17:46:50 GMT", 10.0),
        ("Wednesday, 14-Oct-26 17:46:50 GMT", 10.0),
        ("Wed, 14 Oct 2026 17:46:00 GMT", 0.0),
        ("Wed, 14 Oct 2026 19:46:50 +0200", 10.0),
        ("", None),
        ("1.5", None),
        ("soon", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


# Values of Retry-After that are no wait, however they may look.
ABSURD_WAITS = [
    "Mon, 99999999999999999999 Jan 2020 00:00:00 GMT",
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    "Mon, 01 Jan 2020 00:00:00 +99999999999999999999",
    "Mon, 01 Jan 0001 00:00:00 +1400",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    *("-1", "inf", "nan", "1e999", "9" * 400, "٣", "²", "Jan 2020 00:00", ", , ,", "\x00"),
    "Mon, 1 Jan 2020 00:00:00 GMT" * 1000,
]


@given(value=st.sampled_from(ABSURD_WAITS) | st.text(max_size=80))
def test_any_text_is_a_wait_or_nothing(value: str) -> None:
    found = retry_after(value, NOW)
    assert found is None or found >= 0
