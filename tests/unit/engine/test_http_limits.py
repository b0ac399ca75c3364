"""The limits of one request, to the byte."""

import json
from collections.abc import Callable

import pytest

from engine.process.http_limits import (
    PIECE_BYTES,
    HttpLimits,
    RequestRefusedError,
    RequestSize,
    refusal,
)

LIMITS = HttpLimits(head_bytes=100, headers=3, message_bytes=200)


def status_of(action: Callable[[], None]) -> int | None:
    try:
        action()
    except RequestRefusedError as error:
        return error.status
    return None


def test_a_head_is_counted_with_its_separators() -> None:
    size = RequestSize(LIMITS)
    size.begin()
    size.add_url(b"/" * 40)
    size.add_header(b"n" * 10, b"v" * 10)  # and ": " and a line end
    size.add_header(b"n" * 16, b"v" * 16)
    assert status_of(lambda: size.add_url(b"x")) == 431


def test_header_lines_are_counted_trailers_included() -> None:
    size = RequestSize(LIMITS)
    for _ in range(2):
        size.begin()
        for _ in range(2):
            size.add_header(b"n", b"v")
        size.end_head()
        size.add_header(b"trailer", b"v")
        assert status_of(lambda: size.add_header(b"n", b"v")) == 431
        size.end_body()


def test_unparsed_bytes_of_a_head_are_bounded() -> None:
    size = RequestSize(LIMITS)
    size.add_piece(100)
    size.add_piece(PIECE_BYTES)
    assert status_of(lambda: size.add_piece(1)) == 431


def test_a_body_is_counted_with_its_framing_and_each_request_alone() -> None:
    size = RequestSize(LIMITS)
    for _ in range(2):
        size.begin()
        size.add_piece(90)
        assert size.in_head
        size.end_head()
        assert not size.in_head
        size.add_piece(150)
        size.add_piece(50)
        assert status_of(lambda: size.add_piece(1)) == 413
        size.end_body()


@pytest.mark.parametrize(("status", "phrase"), [(400, "Bad Request"), (503, "Service Unavailable")])
def test_a_refusal_is_a_complete_answer(status: int, phrase: str) -> None:
    head, _, body = refusal(status, "say it").partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert first == f"HTTP/1.1 {status} {phrase}"
    assert f"content-length: {len(body)}" in headers
    assert "connection: close" in headers
    assert json.loads(body) == {"status": "error", "message": "say it", "code": status}
