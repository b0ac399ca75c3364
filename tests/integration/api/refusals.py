"""Checks the shape of an error's answer."""

from typing import Any


def error_body(answer: Any, status: int) -> dict[str, Any]:
    """The body of an error, whose shape is checked."""
    assert answer.status_code == status, answer.text
    body = dict(answer.json())
    signing_in = answer.request.url.path == "/v2/auth" and answer.request.method == "POST"
    text = "error_message" if signing_in else "message"
    assert set(body) - {"fields"} == {"status", text, "code"}
    assert (body["status"], body["code"]) == ("error", status)
    return body
